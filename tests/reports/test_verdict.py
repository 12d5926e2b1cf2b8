"""The first screen: verdict, blame, what to do next, and what a partial run may say."""

import msgspec
import pytest

import reports
from fidelity.records import AnyRecord, Setting, Verdict
from fidelity.words import Blame, Outcome, RunVerdict
from reports.view import report_of
from reports.view_verdict import Hero
from tests.reports import pieces, runs
from tests.reports.page import read


def hero(records: list[AnyRecord]) -> Hero:
    return report_of(records).hero


def test_an_unfaithful_run_blames_the_deployment_in_its_headline() -> None:
    page = read(reports.render_html(runs.unfaithful_after_abort()))
    assert next(page.every("h1")).text == "Unfaithful. The deployment is to blame."
    first = page.one("verdict")
    assert "1 of 14 claims fails, follow-ups after an abort lose the conversation" in first.text
    assert [node.text for node in first.every("p", "blamed")] == ["the deployment"]
    assert "t-fail" in first.attributes["class"].split()


def test_a_faithful_run_says_so_and_points_at_what_was_never_exercised() -> None:
    first = hero(runs.faithful())
    assert first.headline == "Faithful. This deployment reads its context."
    assert first.blame == ""
    assert [(step.text, step.link) for step in first.steps] == [
        ("Nothing has to be done.", ""),
        ("Read what this run never exercised.", "#coverage"),
    ]


@pytest.mark.parametrize(
    ("blame", "headline"),
    [
        (Blame.UNKNOWN, "Undecided. Claims fail; who is to blame is not known yet."),
        (Blame.MODEL_LIMIT, "Undecided. What fails is at the model’s own limit."),
    ],
)
def test_recall_that_fails_alone_does_not_convict_the_deployment(
    blame: Blame, headline: str
) -> None:
    records = runs.unfaithful_at_a_residue()
    assert isinstance(records[-1], Verdict)
    records[-1] = msgspec.structs.replace(records[-1], blame=blame)
    first = hero(records)
    assert first.headline == headline
    assert first.badge.tone == "inconclusive"


def test_a_broken_promise_alone_is_named_in_the_headline() -> None:
    records = runs.faithful()
    records[-1] = pieces.verdict(
        RunVerdict.UNDECIDED,
        "undecided: 14 of 14 claims hold, none fails; promised and absent: cached_tokens",
        counts={"pass": 14, "unmet_expectations": 1},
    )
    assert hero(records).headline == "Undecided. What the deployment promises is absent."


def test_every_outcome_is_counted_with_its_word_and_its_own_symbol() -> None:
    records: list[AnyRecord] = [pieces.manifest(planned_claims=tuple(f"s/{o}" for o in Outcome))]
    records += [
        msgspec.structs.replace(pieces.simple_pass(f"s/{outcome}", "a claim"), outcome=outcome)
        for outcome in Outcome
    ]
    records.append(pieces.verdict(RunVerdict.UNDECIDED, "undecided: one of each"))
    counts = hero(records).counts
    assert [(item.badge.word, item.count) for item in counts] == [
        ("fail", 1),
        ("error", 1),
        ("inconclusive", 1),
        ("pass", 1),
        ("not applicable", 1),
    ]
    assert len({item.badge.symbol for item in counts}) == 5
    assert len({item.badge.tone for item in counts}) == 5
    html = reports.render_html(records)
    assert all(f'id="i-{item.badge.tone}"' in html for item in counts)
    assert sum(item.share for item in counts) == pytest.approx(100)


def test_a_dead_server_is_an_error_and_sends_the_reader_to_the_doctor() -> None:
    first = hero(runs.dead_server())
    assert first.headline == "Undecided. Nothing could be measured."
    assert [(item.badge.word, item.count) for item in first.counts] == [("error", 14)]
    assert [step.command for step in first.steps] == ["fidelity doctor http://127.0.0.1:9/v1"]


def test_an_interrupted_run_is_marked_partial_and_says_how_to_finish() -> None:
    first = hero(runs.interrupted())
    assert first.headline == "Undecided. The run was interrupted."
    assert first.partial == (
        "Partial result: the run was interrupted; 12 claims of the plan not reached. "
        "Nothing below speaks for what is missing."
    )
    assert first.steps[0].command == (
        "fidelity run --deployment embedded --budget quick --resume "
        "--run-dir=runs/20261129T210411Z-a1b2c3"
    )
    assert ("not reached", 12) in [(item.badge.word, item.count) for item in first.counts]


def test_a_pytest_command_is_resumed_with_prefixed_options() -> None:
    records = runs.interrupted()
    records[0] = pieces.manifest(command=("pytest", "suites", "--fidelity-model", "x"))
    assert hero(records).steps[0].command == (
        "pytest suites --fidelity-model x --fidelity-resume "
        "--fidelity-run-dir=runs/20261129T210411Z-a1b2c3"
    )


def test_a_killed_run_has_no_verdict_and_never_looks_like_a_pass() -> None:
    first = hero(runs.killed())
    assert first.badge.word == "No verdict"
    assert first.sentence == "The journal ends after 2 of 14 claims and 88 trials."
    assert (
        "t-pass" not in read(reports.render_html(runs.killed())).one("verdict").attributes["class"]
    )


def test_a_verdict_before_further_trials_does_not_count() -> None:
    """A resumed run that was killed: what its first end said no longer holds."""
    records = [*runs.interrupted(), pieces.needle(900, 2048)]
    assert hero(records).badge.word == "No verdict"


def test_the_first_miss_can_be_sent_again_and_patches_that_ran_are_named() -> None:
    steps = hero(runs.unfaithful_after_abort()).steps
    assert steps[1].command.startswith("fidelity replay runs/20261129T210411Z-a1b2c3 ")
    assert steps[2].text == "Switch the patches off, one at a time: index_keys."


def test_patches_are_no_suspects_where_the_model_is_at_its_limit() -> None:
    assert not [step for step in hero(runs.large()).steps if "patches" in step.text]


def test_the_run_folder_is_the_one_that_was_chosen() -> None:
    records = runs.unfaithful_after_abort()
    chosen = Setting(name="run_dir", value="/srv/my runs/a", origin="flag --run-dir")
    records[0] = pieces.manifest(settings=(chosen,))
    assert hero(records).steps[1].command.startswith("fidelity replay '/srv/my runs/a' ")
