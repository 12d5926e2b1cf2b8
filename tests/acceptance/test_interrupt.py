"""Ctrl-C: the exit code says so, what was measured is kept, and the run can be taken up again."""

import pytest
from product import fidelity_run

from fidelity.words import Outcome, RunVerdict

pytestmark = pytest.mark.acceptance

SUITES = ("continuation", "no_cross_conversation_leak")


def test_an_interrupted_run_keeps_what_it_measured_and_goes_on(tmp_path):
    folder = tmp_path / "run"
    with fidelity_run(*SUITES, folder=folder, name="interrupted") as running:
        running.wait_until(lambda: running.trials_by_suite()["no_cross_conversation_leak"] >= 6)
        running.interrupt()
        ran = running.end()
    assert ran.code == 130, ran.output[-2_000:]
    assert ran.left_behind == frozenset()
    assert ran.verdict.interrupted
    assert ran.verdict.sentence.startswith("interrupted after 2 of 4 claims")
    assert ran.verdict.verdict is RunVerdict.UNDECIDED
    assert {f.suite for f in ran.findings.values() if f.outcome is Outcome.PASS} == {"continuation"}
    assert "interrupted after 2 of 4 claims" in ran.report
    assert (folder / "junit.xml").is_file()
    assert "--resume" in ran.output
    before = {trial.id for trial in ran.trials if trial.ok is not None}

    with fidelity_run(*SUITES, "--resume", folder=folder, name="taken up") as running:
        resumed = running.end()
    assert resumed.code == 0, resumed.told()
    assert resumed.verdict.verdict is RunVerdict.FAITHFUL
    assert not resumed.verdict.interrupted
    assert resumed.outcomes() == {Outcome.PASS: 4}
    assert before <= {trial.id for trial in resumed.trials}
