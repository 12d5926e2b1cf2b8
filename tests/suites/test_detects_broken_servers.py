"""The suites against servers whose fault is known: which of them must fail, and which must not."""

from pathlib import Path

import broken_readers as broken
import pytest
from reader import Deployment

import fidelity.deployment.deployment
import fidelity.runs.pytest_run
import reports
from fidelity.checks import (
    abort,
    bystanders,
    cached_follow_up,
    continuation,
    conversation,
    gauges,
    leak,
    sweeps,
)
from fidelity.records import Finding, Trial, Verdict, read_journal
from fidelity.words import Outcome

IMPORTED_ONCE = (
    *(fidelity.deployment.deployment, fidelity.runs.pytest_run, reports),
    *(abort, bystanders, cached_follow_up, continuation, conversation, gauges, leak, sweeps),
)
"""An inner pytest forgets what it is the first to import, and would import it each time."""
SUITES = Path(__file__).parents[2] / "suites"
NEEDLE = "needle_sweep/needle_is_found_at_every_length_depth_and_residue"
SECTIONS = "needle_sweep/a_line_is_found_by_the_heading_of_its_section"
TURNS = "multi_turn_recall/facts_told_in_earlier_turns_are_recalled"
CACHED = "multi_turn_recall/follow_up_over_a_cached_prefix_is_right_at_every_residue"
SHORT = "continuation/interrupted_page_is_taken_up_again[short]"
LONG = "continuation/interrupted_page_is_taken_up_again[long]"
ABORT = "abort_then_followup/follow_up_after_an_abort_reads_its_whole_context"
BYSTANDERS = "abort_then_followup/bystanders_of_aborts_are_unharmed"
GAUGES = "abort_then_followup/gauges_return_after_a_storm_of_aborts"
_LEAK = "no_cross_conversation_leak/no_canary_of_one_conversation_shows_in_another"
SEQUENTIAL, CONCURRENT = f"{_LEAK}[one after the other]", f"{_LEAK}[many at once]"
ALL = {
    NEEDLE,
    SECTIONS,
    TURNS,
    CACHED,
    SHORT,
    LONG,
    ABORT,
    BYSTANDERS,
    GAUGES,
    SEQUENTIAL,
    CONCURRENT,
}
RECALL = ALL - {GAUGES}
FILES = (
    "needle_sweep",
    "multi_turn_recall",
    "continuation",
    "abort_then_followup",
    "no_cross_conversation_leak",
)


class Opener:
    """A plugin that puts a deployment in the place of a server."""

    def __init__(self, deployment):
        self.deployment = deployment

    def pytest_fidelity_open_deployment(self, settings, run_dir):
        del settings, run_dir

        async def opening():
            return self.deployment

        return opening()


@pytest.fixture
def measured(pytester, monkeypatch):
    """Return a function that runs the suites on a reader: outcomes by claim, and the verdict."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "GITHUB_STEP_SUMMARY", "CI"):
        monkeypatch.delenv(name, raising=False)

    def run(client, *options, files=FILES, allow="load,disruptive", **deployment):
        ini = pytester.makeini("[pytest]")
        paths = [str(SUITES / f"test_{name}.py") for name in files]
        result = pytester.runpytest_inprocess(
            *paths,
            f"-c{ini}",
            "--import-mode=importlib",
            "--fidelity-base-url=http://127.0.0.1:1/v1",
            "--fidelity-model=reader",
            f"--fidelity-allow={allow}",
            f"--fidelity-run-dir={pytester.path / 'run'}",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            *options,
            plugins=[Opener(Deployment(client, **deployment))],
        )
        records = list(read_journal(pytester.path / "run" / "run.jsonl"))
        found = {r.claim: r for r in records if isinstance(r, Finding)}
        assert isinstance(records[-1], Verdict)
        assert result.ret == records[-1].exit_code
        return found, records

    return run


def failed(found):
    return {claim for claim, finding in found.items() if finding.outcome is Outcome.FAIL}


def misses_of(records):
    """Return the wrong trials of the arm that is claimed of, stage 1."""
    return [r for r in records if isinstance(r, Trial) and r.ok is False and not r.arm]


@pytest.mark.parametrize("name", broken.HEALTHY)
def test_a_server_that_reads_passes_every_claim(measured, name):
    found, records = measured(broken.HEALTHY[name]())
    assert {claim: f.outcome for claim, f in found.items()} == dict.fromkeys(ALL, Outcome.PASS)
    assert records[-1].exit_code == 0


N, M, C, A, L = FILES
TABLE = [
    (broken.LastTurnOnly, (M, C, L), {TURNS, CACHED, SHORT, LONG, SEQUENTIAL, CONCURRENT}),
    (broken.ToolResultsDropped, (M,), {TURNS}),
    (broken.SystemDropped, (M,), {TURNS}),
    (broken.ColdBurst, (L,), {CONCURRENT}),
    (broken.SamplingMixedUp, (A,), {BYSTANDERS}),
    (broken.MiddleLost, (N,), {NEEDLE}),
    (broken.HeadingsLost, (N,), {SECTIONS}),
    (broken.HeadCutSilently, (N,), {NEEDLE, SECTIONS}),
    (broken.OneResidueWrong, (N, M), {NEEDLE, TURNS, CACHED}),
    (broken.OneResidueOf64Wrong, (N, M), {NEEDLE, CACHED}),
    (broken.WrongOnCacheHits, (M, A), {CACHED, ABORT, BYSTANDERS}),
    (broken.AlwaysDenies, (N, C), {NEEDLE, SHORT, LONG}),
    (broken.NamesEveryCode, (N, M, A), {TURNS, CACHED, ABORT, BYSTANDERS}),
    (broken.NeverStops, (N, M), {NEEDLE, TURNS, CACHED}),
    (broken.Empty, (M, C, L), {TURNS, CACHED, SHORT, LONG, SEQUENTIAL, CONCURRENT}),
]


@pytest.mark.parametrize(
    ("server", "files", "must_fail"), TABLE, ids=[t[0].__name__ for t in TABLE]
)
def test_a_broken_server_fails_the_claims_that_it_breaks(measured, server, files, must_fail):
    found, records = measured(server(), files=files)
    missing = must_fail - failed(found)
    assert not missing, {claim: (found[claim].outcome, found[claim].reason) for claim in missing}
    assert records[-1].exit_code == 1


def test_kinds_of_needle_that_fail_at_every_length_are_no_pass(measured):
    found, _ = measured(broken.NamesEveryCode(), files=(N,))
    assert found[NEEDLE].outcome is Outcome.INCONCLUSIVE
    assert "beyond the model, or broken at every length" in found[NEEDLE].reason


@pytest.mark.parametrize(
    ("server", "files", "must_fail"),
    [
        (broken.AbortsPoison, (A, C), {ABORT}),
        (broken.BystandersHurt, (A, C), {ABORT, BYSTANDERS}),
        (broken.GaugesStuck, (A,), {GAUGES}),
        (broken.Leaks, (L, M), {SEQUENTIAL, CONCURRENT}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_fault_of_one_kind_fails_its_claim_and_no_other(
    measured, monkeypatch, server, files, must_fail
):
    monkeypatch.setattr(gauges, "SETTLE_S", 0.3)
    found, records = measured(server(), files=files)
    assert failed(found) == must_fail, {c: (f.outcome, f.reason) for c, f in found.items()}
    others = {f.outcome for claim, f in found.items() if claim not in must_fail}
    assert others <= {Outcome.PASS}
    assert records[-1].exit_code == 1


@pytest.mark.parametrize("server", [broken.Dead, broken.OnlyThinks])
def test_what_cannot_be_measured_is_neither_pass_nor_fail(measured, monkeypatch, server):
    monkeypatch.setattr(gauges, "SETTLE_S", 0.3)
    found, records = measured(server(), files=(M, C, A, L))
    recall = {f.outcome for claim, f in found.items() if claim != GAUGES}
    assert recall == {Outcome.ERROR}
    assert records[-1].exit_code == 2


def test_reasoning_that_eats_the_budget_is_named_as_the_reason(measured):
    found, _ = measured(broken.OnlyThinks(), files=("needle_sweep",))
    assert "inside its reasoning" in found[NEEDLE].reason


def test_a_lying_tokenizer_is_an_error_and_no_fail(measured):
    found, _ = measured(broken.TokenizerLies(), files=("needle_sweep",))
    assert found[NEEDLE].outcome is Outcome.ERROR
    assert "tokenizer endpoint counted" in found[NEEDLE].reason


def test_headings_that_are_lost_leave_facts_that_name_their_subject(measured):
    found, _ = measured(broken.HeadingsLost(), files=("needle_sweep",))
    assert failed(found) == {SECTIONS}
    assert found[NEEDLE].outcome is Outcome.PASS


def test_a_dropped_turn_is_blamed_on_the_deployment_and_said_to_be_lost_in_rendering(measured):
    found, records = measured(broken.LastTurnOnly(), files=("multi_turn_recall",))
    assert found[TURNS].blame == "deployment"
    lost = {r.lost for r in misses_of(records)}
    assert lost == {"rendering"}


def test_text_that_is_counted_but_never_read_is_lost_in_attention(measured):
    _, records = measured(broken.MiddleLost(), files=("needle_sweep",))
    assert {r.lost for r in misses_of(records)} == {"attention"}


def test_a_silent_cut_is_lost_in_rendering(measured):
    _, records = measured(broken.HeadCutSilently(), files=("needle_sweep",))
    assert {r.lost for r in misses_of(records)} == {"rendering"}


def test_one_residue_is_blamed_on_the_deployment(measured):
    found, _ = measured(broken.OneResidueWrong(), files=("needle_sweep",))
    assert found[NEEDLE].blame == "deployment"
    assert "≡ 3 (mod 4)" in found[NEEDLE].reason


def test_disruptive_claims_are_not_applicable_where_nobody_allowed_them(measured):
    found, _ = measured(broken.Reader(), allow="", files=("abort_then_followup",))
    assert {f.outcome for f in found.values()} == {Outcome.NOT_APPLICABLE}
