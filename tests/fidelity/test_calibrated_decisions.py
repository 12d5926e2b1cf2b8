"""10,000 whole runs of a deployment at the very edge of every claim, decided by the real functions.

At the edge a claim still holds, so each fail is a false alarm; and it holds by nothing, so that a
pass there is what a claim that fails by nothing would get. Decisions are kept by what was drawn:
the functions under test are called, never imitated.
"""

import functools
import math
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from fidelity.records import Finding, Trial
from fidelity.statistics.divergence import Flip
from fidelity.statistics.sequential import may_stop_for_fail
from fidelity.statistics.stats import ALPHA
from fidelity.twins.floor import FLOOR_NATS, judge_floor
from fidelity.twins.running import AGREE
from fidelity.verdicts.decisions import (
    Claim,
    all_true_finding,
    noninferior_finding,
    rate_finding,
)
from fidelity.verdicts.opened import CLASS_THRESHOLD, CLASS_TRIALS, second_stage
from fidelity.verdicts.parts import merge
from fidelity.verdicts.verdict import judge, resolve
from fidelity.words import Outcome, RunVerdict

RUNS = 10_000
SEED = 20_261_130
MODULUS = 4
POOL, OVER_TURNS, ABORTS, TWINS = 64, 48, 18, 24


def noise(share, runs=RUNS):
    """Three standard deviations of a share that was counted over so many runs."""
    return 3 * math.sqrt(share * (1 - share) / runs)


def claim(name, suite="s"):
    return Claim(id=f"{suite}/{name}", suite=suite, title=name)


def made(oks, arm="", **cell):
    return [
        Trial(
            id=f"{arm}{i}", claim="c", suite="s", probe="p", arm=arm, key=str(i), ok=ok, cell=cell
        )
        for i, ok in enumerate(oks)
    ]


def counted(right, n, arm=""):
    return made([i < right for i in range(n)], arm)


@functools.cache
def rate(name, right, n, threshold):
    return rate_finding(claim(name), counted(right, n), threshold, title=name)


@functools.cache
def with_classes(name, wrong, fresh, threshold, suite="s"):
    """A rate over equally many trials of four residues; a residue that missed is asked again."""
    of = POOL // MODULUS if name == "pool" else TWINS // MODULUS
    trials = [
        trial
        for residue, misses in enumerate(wrong)
        for trial in made([i >= misses for i in range(of)], f"{residue}-", residue_4=residue)
    ]
    opened = second_stage(
        trials,
        lambda trial: [f"residue_4={trial.cell['residue_4']}"],
        lambda found: counted(fresh[int(found[-1])], CLASS_TRIALS, f"{found}-"),
        threshold=CLASS_THRESHOLD,
    )
    return rate_finding(claim(name, suite), trials, threshold, title=name, opened=opened)


@functools.cache
def paired(name, lost, gained, n, margin):
    control = counted(n - gained, n, "control")
    treated = made([i >= lost for i in range(n)])
    return noninferior_finding(claim(name), treated, control, margin, title=name)


@dataclass(frozen=True)
class Null:
    """One pair of identical requests."""

    mean_abs_uncertain: float
    flips: tuple[Flip, ...] = ()


def floor_of(means):
    found = judge_floor([Null(mean) for mean in means])
    return Finding(
        claim="twins/floor",
        suite="twins",
        title="floor",
        outcome=found.outcome,
        reason=found.reason,
        p_value=found.p_value,
        provisional=found.outcome is Outcome.FAIL,
    )


def drawn(rng, *, edge=0.0):
    """Yield the findings of one run after another; `edge` moves every claim off its edge.

    Above 0 all is better than its claim by so much, below 0 worse.
    """

    def right(n, threshold):
        return rng.binomial(n, min(1.0, threshold + edge), RUNS)

    def split(threshold, of):
        p = max(0.0, 1 - threshold - edge)
        return rng.binomial(of, p, (RUNS, MODULUS)), rng.binomial(
            CLASS_TRIALS, min(1.0, max(threshold, CLASS_THRESHOLD) + edge), (RUNS, MODULUS)
        )

    def pairs(n, margin):
        lost = max(0.0, 0.05 + margin - edge)
        return rng.multinomial(n, (lost, 0.05, 0.95 - lost), RUNS)

    plain, tight = right(22, 0.80), right(120, 0.95)
    pool, fresh = split(0.80, POOL // MODULUS)
    turns, aborts, both = pairs(OVER_TURNS, 0.10), pairs(ABORTS, 0.20), pairs(OVER_TURNS, 0.10)
    beside = right(OVER_TURNS, 0.80)
    arms, fresh_arms = split(AGREE, TWINS // MODULUS)
    nulls = rng.gamma(4.0, (FLOOR_NATS - edge / 10) / 4.0, (RUNS, TWINS))
    for run in range(RUNS):
        two = [
            paired("b", int(both[run, 0]), int(both[run, 1]), OVER_TURNS, 0.10),
            rate("b", int(beside[run]), OVER_TURNS, 0.80),
        ]
        twin = [
            with_classes("arms", tuple(arms[run]), tuple(fresh_arms[run]), AGREE, "twins"),
            floor_of(nulls[run]),
        ]
        yield {
            "plain": rate("plain", int(plain[run]), 22, 0.80),
            "tight": rate("tight", int(tight[run]), 120, 0.95),
            "pool": with_classes("pool", tuple(pool[run]), tuple(fresh[run]), 0.80),
            "turns": paired("turns", int(turns[run, 0]), int(turns[run, 1]), OVER_TURNS, 0.10),
            "aborts": paired("aborts", int(aborts[run, 0]), int(aborts[run, 1]), ABORTS, 0.20),
            "two": merge(claim("two"), two),
            "twin": merge(claim("twin", "twins"), twin),
            "always": ALWAYS,
        }


ALWAYS = all_true_finding(claim("always"), counted(20, 20), title="always")


def settled(findings):
    """Holm and the verdict, as at the end of a run."""
    by_claim = {
        f"s/{name}": msgspec.structs.replace(found, claim=f"s/{name}")
        for name, found in findings.items()
    }
    resolution = resolve(by_claim, [], list(by_claim))
    return resolution.findings, judge(resolution, list(by_claim))


@pytest.fixture(scope="module")
def at_the_edge():
    """Of every run: what each claim came to before Holm, what failed after it, the verdict."""
    rows = []
    for findings in drawn(np.random.default_rng(SEED)):
        before = {name: found.outcome for name, found in findings.items()}
        failed, verdict = (), None
        if Outcome.FAIL in before.values():  # without one Holm changes nothing
            after, judgement = settled(findings)
            failed = tuple(f.claim for f in after if f.outcome is Outcome.FAIL)
            verdict = judgement.verdict
        rows.append((before, failed, verdict))
    return rows


def test_a_run_raises_a_false_alarm_in_at_most_5_percent(at_the_edge):
    alarms = sum(bool(failed) for _, failed, _ in at_the_edge) / RUNS
    assert alarms <= ALPHA + noise(ALPHA)
    assert alarms > 0.001, "a simulation without a single alarm measures nothing"


def test_without_holm_the_same_runs_would_raise_too_many(at_the_edge):
    alarms = sum(Outcome.FAIL in before.values() for before, _, _ in at_the_edge) / RUNS
    assert alarms > ALPHA + noise(ALPHA)


def test_no_claim_alone_raises_more_than_5_percent(at_the_edge):
    for name in at_the_edge[0][0]:
        alarms = sum(before[name] is Outcome.FAIL for before, _, _ in at_the_edge) / RUNS
        assert alarms <= ALPHA + noise(ALPHA), name


def test_no_claim_passes_at_its_edge_in_more_than_5_percent(at_the_edge):
    for name in ("plain", "tight", "pool", "turns", "aborts", "two", "twin"):
        passes = sum(before[name] is Outcome.PASS for before, _, _ in at_the_edge) / RUNS
        assert passes <= ALPHA + noise(ALPHA), name
    assert all(before["always"] is Outcome.PASS for before, _, _ in at_the_edge)


def test_a_run_at_the_edge_is_called_unfaithful_no_more_often_than_it_raises_an_alarm(at_the_edge):
    unfaithful = sum(verdict is RunVerdict.UNFAITHFUL for _, _, verdict in at_the_edge) / RUNS
    assert unfaithful <= ALPHA + noise(ALPHA)


def test_an_early_stop_for_a_fail_is_false_in_at_most_5_percent():
    """Looking after each of 200 pairs, of which neither direction is likelier."""
    rng = np.random.default_rng(SEED)
    stops = functools.cache(may_stop_for_fail)
    false = 0
    for directions in rng.random((2_000, 200)) < 0.5:
        lost = np.cumsum(directions)
        false += any(stops(int(k), i + 1 - int(k)) for i, k in enumerate(lost))
    assert 0 < false / 2_000 <= ALPHA + noise(ALPHA, 2_000)
