"""kill -9 in the middle, then `--resume`: the same verdict, each trial counted once."""

from collections import Counter

import pytest
from product import fidelity_run, finished

from fidelity.words import Outcome

pytestmark = pytest.mark.acceptance

SUITES = ("continuation", "long_generation", "no_cross_conversation_leak")
SEED = "--seed=7"
KILLS = (
    ("continuation", 15),
    ("no_cross_conversation_leak", 5),
    ("no_cross_conversation_leak", 30),
)
"""Suite, and number of its trials in the journal at which the harness is killed."""


def _decided(ran):
    """What the run says of each claim."""
    return {
        name: (f.outcome, f.k, f.n, f.effect, f.interval, f.blame, f.ladder, f.title)
        for name, f in ran.findings.items()
    }


def _counted(ran):
    """How often the findings count each probe; a pair that a kill tore apart was asked twice."""
    trials = {trial.id: trial for trial in ran.trials}
    named = [trials[name] for finding in ran.findings.values() for name in set(finding.trials)]
    return Counter((t.claim, t.arm, t.stage, t.key) for t in named)


def _kill_at(suite, trials, arguments, folder):
    name = f"killed at {trials} trials of {suite}"
    with fidelity_run(*arguments, folder=folder, name=name) as running:
        running.wait_until(lambda: running.trials_by_suite()[suite] >= trials)
        started = running.started
        running.kill()
        ran = running.end()
    assert ran.code == -9
    assert len(started) >= 3  # harness, supervisor, engine
    assert ran.left_behind == frozenset()
    return ran


def _same_as_unbroken(resumed, unbroken):
    assert resumed.code == unbroken.code, resumed.told()
    assert resumed.verdict.verdict is unbroken.verdict.verdict
    assert resumed.verdict.sentence == unbroken.verdict.sentence
    assert resumed.verdict.counts == unbroken.verdict.counts
    assert _decided(resumed) == _decided(unbroken)
    assert _counted(resumed) == _counted(unbroken)
    assert set(_counted(resumed).values()) == {1}


def test_a_faithful_run_that_is_killed_three_times_comes_to_the_same_end(tmp_path):
    unbroken = finished(*SUITES, SEED, folder=tmp_path / "unbroken", name="unbroken")
    assert unbroken.code == 0, unbroken.told()
    folder, resume = tmp_path / "broken", ()
    for suite, trials in KILLS:
        _kill_at(suite, trials, (*SUITES, SEED, *resume), folder)
        resume = ("--resume",)
    resumed = finished(*SUITES, SEED, *resume, folder=folder, name="resumed")
    _same_as_unbroken(resumed, unbroken)
    assert resumed.outcomes() == {Outcome.PASS: len(unbroken.planned)}
    # no arms are compared here, so nothing was asked twice
    assert len(resumed.trials) == len(unbroken.trials)
    assert {trial.index for trial in resumed.trials} == {0}


def test_an_unfaithful_run_that_is_killed_comes_to_the_same_end(tmp_path):
    arguments = ("continuation", "multi_turn_recall", SEED, "--launch-arg=--fault=last_turn_only")
    unbroken = finished(*arguments, folder=tmp_path / "unbroken", name="unbroken, with a fault")
    assert unbroken.code == 1, unbroken.told()
    _kill_at("multi_turn_recall", 40, arguments, tmp_path / "broken")
    resumed = finished(*arguments, "--resume", folder=tmp_path / "broken", name="resumed")
    _same_as_unbroken(resumed, unbroken)
