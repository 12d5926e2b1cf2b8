"""What was measured: facts, patches, capabilities, settings, controls, Holm, the command."""

import msgspec
import pytest

import reports
from fidelity.records import AnyRecord, CapabilityState, PatchState, RoleState
from reports.view import report_of
from reports.view_text import anchor, cut, duration, figure, joined, one_line, visible, when
from tests.reports import pieces, runs
from tests.reports.page import Node, read


def section(records: list[AnyRecord], name: str) -> Node:
    return read(reports.render_html(records)).one(name)


def test_the_facts_name_deployment_model_budget_time_tokens_and_commit() -> None:
    facts = report_of(runs.faithful()).subject.facts
    assert {fact.name: (fact.value, fact.note) for fact in facts} == {
        "Deployment": ("embedded", "started by the harness"),
        "Model": ("nano", "http://127.0.0.1:8123/v1"),
        "Budget": ("quick", "seed 7"),
        "Time": ("2 min 41 s", "began 2026-11-29 21:04 UTC"),
        "Tokens": ("1,284,211 in, 21,870 out", "8,092 tokens a second overall"),
        "Trials": ("293", "412 requests"),
        "Git commit": ("4632c59d8f1b", "run 20261129T210411Z-a1b2c3"),
    }


def test_uncommitted_changes_are_told() -> None:
    (commit,) = [
        fact.value
        for fact in report_of([pieces.manifest(git_commit=f"{'ab12' * 10}-dirty")]).subject.facts
        if fact.name == "Git commit"
    ]
    assert commit == "ab12ab12ab12, with uncommitted changes"


def test_a_run_without_a_verdict_counts_what_its_trials_used() -> None:
    trial = pieces.needle(0, 512, at="2026-11-29T21:05:23.000+00:00")
    facts = {fact.name: fact.value for fact in report_of([pieces.manifest(), trial]).subject.facts}
    assert facts["Tokens"] == "512 in, 4 out"
    assert facts["Time"] == "1 min 12 s, then cut off"


def test_a_patch_that_is_on_and_never_ran_is_flagged_inert() -> None:
    rows = next(section(runs.faithful(), "patches").every("table")).rows
    assert rows == [
        ["index_keys", "on", "48,210", "int4,row"],
        ["mhc_bf16", "on", "0", "inert: installed, never ran"],
        ["index_topk", "off", "0", ""],
    ]
    assert report_of(runs.faithful()).subject.patch_summary == "2 of 3 on, 1 of them inert"
    page = read(reports.render_html(runs.faithful()))
    (line,) = page.one("verdict").every("p", "partial")
    assert line.text.startswith("Inert patches: mhc_bf16 is on and was never called")
    assert "mhc\\_bf16 is on and was never called" in reports.render_summary(runs.faithful())


def test_odd_patch_states_are_flagged() -> None:
    patches = [
        PatchState(name="a", state="on", calls=None),
        PatchState(name="b", state="off", calls=3),
    ]
    rows = report_of(patches).subject.patches
    assert [row.flag for row in rows] == [
        "no call count: not shown to have run",
        "ran although it is not on",
    ]


def test_a_patch_that_something_shows_to_be_live_needs_no_call_count() -> None:
    shown = PatchState(name="a", state="on", phase="decode", proof="log line 'a'", detail="x")
    (row,) = report_of([shown]).subject.patches
    assert (row.flag, row.detail) == ("", "decode · x")


def test_a_run_without_patch_records_shows_what_was_live_when_it_began() -> None:
    began = pieces.manifest(patches=(PatchState(name="a", state="on", calls=7),))
    (row,) = report_of([began]).subject.patches
    assert (row.name, row.calls) == ("a", "7")


def test_each_role_of_a_deployment_is_a_fact() -> None:
    roles = (
        RoleState(name="decode", url="http://gpu7:1", host="gpu7"),
        RoleState(name="router", url="http://a:2", launched=True),
    )
    facts = {
        f.name: (f.value, f.note) for f in report_of([pieces.manifest(roles=roles)]).subject.facts
    }
    assert facts["Role decode"] == ("http://gpu7:1", "gpu7")
    assert facts["Role router"] == ("http://a:2", "started by the harness")


def test_an_absent_capability_names_the_flag_that_unlocks_it() -> None:
    rows = next(section(runs.faithful(), "capabilities").every("table")).rows
    assert rows[0] == [
        "reasoning",
        "absent",
        "no reasoning field in any answer",
        "--reasoning-parser deepseek-v4",
    ]
    missing = CapabilityState(name="cached_tokens", present=False, expected=True)
    (row,) = report_of([pieces.manifest(capabilities=(missing,))]).subject.absent
    assert (row.word, row.tone) == ("absent, but expected", "error")


def test_present_capabilities_are_listed_with_what_was_expected() -> None:
    listed = [item.text for item in section(runs.faithful(), "capabilities").every("li")]
    assert listed == ["chat expected", "cached_tokens expected"]


def test_settings_come_with_their_origin_those_that_were_chosen_first() -> None:
    subject = report_of(runs.faithful()).subject
    assert [(s.name, s.origin) for s in subject.chosen] == [
        ("budget", "flag --budget"),
        ("seed", "environment FIDELITY_SEED"),
        ("concurrency", "file fidelity.toml:12"),
    ]
    assert [s.name for s in subject.defaults] == ["max_tokens_total", "target"]


def test_a_control_that_did_not_come_out_as_it_must_comes_first() -> None:
    records = runs.faithful()
    blind = msgspec.structs.replace(
        pieces.controls()[0], claim="plumbing/usage_adds_up", ok=False, observed="8 of 8 right"
    )
    rows = next(section([*records, blind], "controls").every("table")).rows
    assert rows[0] == [
        "not as it must",
        "positive: must fail plumbing/usage_adds_up",
        "the fact is cut out of the context",
        "0 of 8 right",
        "8 of 8 right 8 trials",
    ]
    assert [row[0] for row in rows[1:]] == ["as it must", "as it must"]


def test_a_run_without_controls_says_what_that_means() -> None:
    text = section(runs.dead_server(), "controls").text
    assert "nothing shows that these claims can fail" in text


def test_holm_and_the_command_are_printed() -> None:
    records = runs.unfaithful_after_abort()
    assert "p = 0.0004, adjusted 0.0056, stands" in section(records, "holm").text
    repeat = [node.text for node in section(records, "repeat").every("code", "cmd")]
    assert repeat == [
        "fidelity run --deployment embedded --budget quick",
        "python -m engine serve --model engine/checkpoints/nano",
    ]


def test_the_command_is_quoted_for_a_shell() -> None:
    records = [pieces.manifest(command=("fidelity", "run", "--model", "a b; rm -rf $HOME"))]
    assert report_of(records).subject.command == "fidelity run --model 'a b; rm -rf $HOME'"


def test_a_second_epoch_is_told() -> None:
    records = runs.faithful()
    again = pieces.manifest(epoch=1, at="2026-11-29T21:30:00+00:00")
    assert "The run has 2 epochs" in section([*records[:5], again, *records[5:]], "measured").text


def test_an_empty_journal_renders_sections_that_say_what_is_missing() -> None:
    page = read(reports.render_html([]))
    assert "The journal holds no manifest" in page.one("measured").text
    for name in ("claims", "needles", "reach", "conversations", "controls", "patches"):
        assert list(page.one(name).every("p", "none")), name


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0384, "38 ms"), (4.24, "4.2 s"), (161.4, "2 min 41 s"), (3780, "1 h 03 min")],
)
def test_durations_are_worded(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.8, "0.8"), (1.0, "1"), (0.9523, "0.952"), (0.00002, "2.0e-05"), (0, "0"), (20.0, "20")],
)
def test_figures_carry_no_idle_zeros(number: float, text: str) -> None:
    assert figure(number) == text


def test_small_pieces_of_wording() -> None:
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert when("2026-11-29T21:04:11.250+00:00") == "2026-11-29 21:04 UTC"
    assert when("yesterday") == "yesterday"
    assert one_line("a\n b\tc" + "x" * 500, 10) == "a b cxxxx…"
    assert cut("short") == "short"
    assert len(anchor("t", "x" * 900)) < 60
    assert anchor("t", "a b") != anchor("t", "a-b")


def test_scripts_that_need_joiners_keep_them_and_lone_surrogates_are_spelled_out() -> None:
    assert visible("می‌خواهم 👨‍👩‍👧") == "می‌خواهم 👨‍👩‍👧"
    assert visible("\ud800") == "⟨U+D800⟩"
    assert visible("a\r\nb\tc") == "a\nb\tc"
