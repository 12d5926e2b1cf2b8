"""From trials to findings: bounds, trouble, classes, pairs, and who is to blame."""

import random

import pytest

from fidelity.errors import ConfigError
from fidelity.records import Exchange, Trial
from fidelity.verdicts.decisions import (
    Claim,
    all_true_finding,
    noninferior_finding,
    rate_finding,
    undecided_finding,
)
from fidelity.verdicts.opened import OpenedClass, missed_classes, pool_already_fails
from fidelity.verdicts.parts import merge
from fidelity.words import Blame, Ladder, Outcome

CLAIM = Claim(id="s/c", suite="s", title="a claim")


def trials(right, wrong=0, errors=0, *, start=0, **fields):
    kinds = [True] * right + [False] * wrong + [None] * errors
    return [
        Trial(
            id=f"{fields.get('arm', '')}{start + i}",
            claim="s/c",
            suite="s",
            probe="needle",
            key=str(start + i),
            ok=ok,
            error="connection refused" if ok is None else "",
            **fields,
        )
        for i, ok in enumerate(kinds)
    ]


def decide(made, threshold=0.80, **options):
    return rate_finding(CLAIM, made, threshold, title="recall >= 0.80", **options)


@pytest.mark.parametrize(
    ("right", "wrong", "outcome"),
    [
        (14, 0, Outcome.PASS),
        (13, 0, Outcome.INCONCLUSIVE),
        (21, 1, Outcome.PASS),
        (20, 2, Outcome.INCONCLUSIVE),
        (13, 9, Outcome.FAIL),
        (14, 8, Outcome.INCONCLUSIVE),
    ],
)
def test_bounds_decide_and_between_them_nothing_is_decided(right, wrong, outcome):
    assert decide(trials(right, wrong)).outcome is outcome


def test_an_inconclusive_claim_says_how_many_trials_could_prove_it():
    reason = decide(trials(13)).reason
    assert "13 of 13 right" in reason
    assert "at least 14 trials could prove it" in reason


def test_trouble_never_helps_a_pass():
    found = decide(trials(60, 0, 1))
    assert found.outcome is Outcome.ERROR
    assert "1 of 61 trials could not be measured (first: connection refused)" in found.reason


def test_a_fail_that_no_missing_trial_could_save_is_a_fail():
    assert decide(trials(10, 20, 2)).outcome is Outcome.FAIL


def test_a_fail_that_the_missing_trials_could_save_is_an_error():
    assert decide(trials(13, 9)).outcome is Outcome.FAIL
    assert decide(trials(13, 9, 10)).outcome is Outcome.ERROR


def test_nothing_measured_is_an_error_and_not_a_rate_of_zero():
    assert decide(trials(0, 0, 5)).outcome is Outcome.ERROR
    assert decide([]).reason == "no trial was asked"


def test_needles_of_one_haystack_are_one_observation():
    clustered = [t for c in "abc" for t in trials(20, start=ord(c) * 100, cluster=c)]
    found = decide(clustered)
    assert (found.k, found.n) == (3, 3)
    assert found.outcome is Outcome.INCONCLUSIVE


def test_a_failure_of_recall_alone_blames_nobody():
    found = decide(trials(5, 17))
    assert (found.blame, found.ladder) == (Blame.UNKNOWN, None)
    assert decide(trials(5, 17), blame=Blame.MODEL_LIMIT).blame is Blame.MODEL_LIMIT
    assert decide(trials(22)).blame is None


def test_turns_that_were_never_rendered_are_the_deployments_fault():
    found = decide([*trials(5), *trials(0, 17, start=5, lost="rendering")])
    assert (found.blame, found.ladder) == (Blame.DEPLOYMENT, Ladder.STRUCTURAL)


# second stage


def opened(name, right, wrong, *, beside, errors=0):
    return OpenedClass(
        name=name,
        threshold=0.80,
        trials=tuple(trials(right, wrong, errors, start=1000, stage=2)),
        stage_one=tuple(beside),
    )


def test_a_bad_residue_fails_the_claim_that_its_pool_would_pass():
    healthy = trials(127)
    pool = [*healthy, *trials(0, 1, start=127)]
    assert decide(pool, 0.95).outcome is Outcome.PASS
    found = decide(pool, 0.95, opened=[opened("residue_128=3", 0, 22, beside=healthy)])
    assert found.outcome is Outcome.FAIL
    assert (found.blame, found.ladder) == (Blame.DEPLOYMENT, Ladder.STRUCTURAL)
    assert found.reason.startswith(
        "rate >= 0.80 at prompt length ≡ 3 (mod 128): 0 of 22 fresh probes right (0.000;"
    )
    assert found.reason.endswith("; the other part holds")
    assert len(found.trials) == 128 + 22


def test_a_bad_length_is_not_yet_the_deployments_fault():
    healthy = trials(127)
    pool = [*healthy, *trials(0, 1, start=127)]
    found = decide(pool, opened=[opened("length=8192", 0, 22, beside=healthy)])
    assert (found.outcome, found.blame) == (Outcome.FAIL, Blame.UNKNOWN)


def test_a_bad_residue_beside_a_weak_rest_is_not_yet_the_deployments_fault():
    weak = trials(15, 10)
    found = decide(
        [*weak, *trials(0, 9, start=25)], opened=[opened("residue_4=3", 0, 22, beside=weak)]
    )
    assert (found.outcome, found.blame) == (Outcome.FAIL, Blame.UNKNOWN)


def test_a_class_that_clears_itself_leaves_the_pool_to_decide():
    pool = trials(60, 1)
    assert decide(pool, opened=[opened("residue_4=3", 21, 1, beside=pool)]).outcome is Outcome.PASS


def test_a_class_that_is_not_cleared_keeps_the_claim_open():
    pool = trials(60, 1)
    found = decide(pool, opened=[opened("residue_4=3", 19, 3, beside=pool)])
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "prompt length ≡ 3 (mod 4): 19 of 22" in found.reason


def test_a_class_that_could_not_be_measured_is_an_error():
    pool = trials(60, 1)
    found = decide(pool, opened=[opened("residue_4=3", 20, 0, beside=pool, errors=2)])
    assert found.outcome is Outcome.ERROR


def test_holm_runs_over_all_opened_classes():
    pool = trials(300, 10)
    one = opened("residue_16=3", 12, 10, beside=pool)  # p about .006
    assert decide(pool, opened=[one]).outcome is Outcome.FAIL
    others = [opened(f"residue_16={i}", 22, 0, beside=pool) for i in range(4, 12)]
    assert decide(pool, opened=[one, *others]).outcome is Outcome.INCONCLUSIVE


def test_classes_are_opened_in_order_of_suspicion():
    made = [
        *trials(30, 0, cell={"r4": 0}),
        *trials(0, 8, start=30, cell={"r4": 3}),
        *trials(20, 1, start=40, cell={"r4": 2}),
        *trials(0, 0, 3, start=80, cell={"r4": 1}),
    ]
    assert missed_classes(made, lambda t: [f"residue_4={t.cell['r4']}", "all=1"]) == [
        "residue_4=3",
        "all=1",
        "residue_4=2",
    ]


def test_a_pool_below_the_classes_own_claim_needs_no_classes():
    assert pool_already_fails(trials(10, 30), 0.80)
    assert not pool_already_fails(trials(60, 20), 0.80)
    assert not pool_already_fails(trials(0, 0, 9), 0.80)


# pairs


def compare(treated, control):
    return noninferior_finding(CLAIM, treated, control, 0.10, title="no worse")


def test_clean_pairs_are_harmless_from_29_on():
    assert compare(trials(29), trials(29, arm="control")).outcome is Outcome.PASS
    assert compare(trials(28), trials(28, arm="control")).outcome is Outcome.INCONCLUSIVE


def test_a_weak_model_that_is_equally_weak_in_both_arms_is_harmless():
    assert compare(trials(30, 30), trials(30, 30, arm="control")).outcome is Outcome.PASS


def test_losses_against_the_own_control_arm_are_the_deployments_fault():
    found = compare(trials(15, 15), trials(30, arm="control"))
    assert (found.outcome, found.blame) == (Outcome.FAIL, Blame.DEPLOYMENT)
    assert "15 of 30 pairs were right in the control arm only" in found.reason
    assert found.effect == pytest.approx(-0.5)


def test_a_pair_with_trouble_is_an_error():
    found = compare(trials(29, 0, 1), trials(30, arm="control"))
    assert found.outcome is Outcome.ERROR


def test_losses_that_the_missing_pairs_could_not_outweigh_fail_in_spite_of_them():
    found = compare(trials(9, 20, 1), trials(30, arm="control"))
    assert (found.outcome, found.blame) == (Outcome.FAIL, Blame.DEPLOYMENT)
    # 20 missing pairs could all have spoken for this arm
    found = compare(trials(5, 10, 20), trials(15, 20, arm="control"))
    assert found.outcome is Outcome.ERROR


def test_classes_that_were_opened_count_in_a_comparison_too():
    treated, control = trials(60), trials(60, arm="control")
    guilty = OpenedClass(
        name="residue_4=3",
        threshold=0.80,
        trials=tuple(trials(2, 20, start=900)),
        stage_one=tuple(treated),
    )
    found = noninferior_finding(CLAIM, treated, control, 0.10, title="no worse", opened=[guilty])
    assert found.outcome is Outcome.FAIL
    assert "prompt length ≡ 3 (mod 4)" in found.reason
    assert found.blame is Blame.DEPLOYMENT
    assert len(found.parts) == 2
    healthy = OpenedClass(
        name="residue_4=3",
        threshold=0.80,
        trials=tuple(trials(22, start=900)),
        stage_one=tuple(treated),
    )
    found = noninferior_finding(CLAIM, treated, control, 0.10, title="no worse", opened=[healthy])
    assert found.outcome is Outcome.PASS


def test_a_comparison_says_what_it_could_have_seen():
    found = compare(trials(60), trials(60, arm="control"))
    assert "a loss of 0.10 or more passes with chance 5 % at most" in (
        found.minimum_detectable_effect
    )
    assert "or more fails with chance 80 %" in found.minimum_detectable_effect


def test_arms_are_never_compared_across_a_restart():
    treated = [*trials(29), *trials(0, 20, start=29, epoch=1)]
    found = compare(treated, trials(49, arm="control"))
    assert found.n == 29
    assert found.outcome is Outcome.PASS
    assert "20 pairs across a server restart were left out" in found.reason


def test_arms_of_different_probes_cannot_be_compared():
    with pytest.raises(ConfigError, match="asked different probes"):
        compare(trials(10), trials(10, start=5, arm="control"))


def test_pairs_of_one_cluster_are_one_pair_and_rounded_against_the_decision():
    treated = [t for c in range(30) for t in trials(1, 1, start=c * 10, cluster=f"haystack{c}")]
    control = [
        t for c in range(30) for t in trials(2, start=c * 10, cluster=f"haystack{c}", arm="control")
    ]
    found = compare(treated, control)
    assert (found.n, found.k) == (30, 30)  # cautious: each cluster lost something
    assert found.outcome is Outcome.INCONCLUSIVE  # generous: none was lost whole


# claims without tolerance


def test_one_counter_example_refutes_a_claim_without_tolerance():
    leak = Trial(
        id="t9",
        claim="s/c",
        suite="s",
        probe="canary",
        key="9",
        ok=False,
        expected="no canary",
        exchanges=(Exchange(request_id="r", text="your code is X77"),),
        cell={"length_tokens": 512},
    )
    found = all_true_finding(CLAIM, [*trials(50), leak], title="no leak", ladder=Ladder.STRUCTURAL)
    assert (found.outcome, found.blame, found.p_value) == (Outcome.FAIL, Blame.DEPLOYMENT, 0.0)
    assert found.ladder is Ladder.STRUCTURAL
    assert found.reason == (
        "1 of 51 trials broke the claim; the miss: trial t9, length 512 tokens: said 'your code is"
        " X77', right is 'no canary'"
    )


def test_a_claim_without_tolerance_is_no_pass_with_trouble():
    assert all_true_finding(CLAIM, trials(9, 0, 1), title="x").outcome is Outcome.ERROR
    assert all_true_finding(CLAIM, trials(9, 1, 1), title="x").outcome is Outcome.FAIL
    assert all_true_finding(CLAIM, [], title="x").outcome is Outcome.ERROR
    clean = all_true_finding(CLAIM, trials(9), title="x")
    assert (clean.outcome, clean.ladder, clean.blame) == (Outcome.PASS, None, None)


# several decisions of one claim


def test_the_worst_decision_counts_and_pays_for_the_others():
    bad, good = decide(trials(10, 12)), decide(trials(22))
    found = merge(CLAIM, [good, bad])
    assert found.outcome is Outcome.FAIL
    assert found.p_value == pytest.approx(2 * bad.p_value)
    assert found.blame is Blame.UNKNOWN
    assert merge(CLAIM, [good]) is good
    assert merge(CLAIM, [good, decide(trials(5))]).outcome is Outcome.INCONCLUSIVE
    assert merge(CLAIM, [decide(trials(5)), decide(trials(5, 0, 1))]).outcome is Outcome.ERROR


def test_a_fail_that_only_one_of_several_decisions_barely_bears_is_inconclusive():
    barely = decide(trials(12, 8))  # p .032
    assert barely.outcome is Outcome.FAIL
    assert merge(CLAIM, [barely, decide(trials(22))]).outcome is Outcome.INCONCLUSIVE


# error rates


def test_false_fails_at_the_threshold_stay_within_five_percent_with_classes_opened():
    """A model exactly at the claim, 60 trials in four residue classes, 22 fresh for each miss."""
    rng = random.Random(17)  # noqa: S311 - a simulation
    fails = opened_at_all = 0
    for _ in range(400):
        made = [
            trial
            for residue in range(4)
            for i in range(15)
            for trial in trials(*_draw(rng), start=residue * 15 + i, cell={"r": residue})
        ]
        classes = [
            opened(f"residue_4={residue}", right, 22 - right, beside=made)
            for residue in range(4)
            if any(not t.ok for t in made if t.cell["r"] == residue)
            for right in [sum(rng.random() < 0.80 for _ in range(22))]
        ]
        opened_at_all += bool(classes)
        fails += decide(made, opened=classes).outcome is Outcome.FAIL
    assert opened_at_all == 400
    assert fails <= 33  # 20 expected at most, three standard deviations above


def test_false_passes_at_the_threshold_stay_within_five_percent():
    rng = random.Random(18)  # noqa: S311 - a simulation
    passes = 0
    for _ in range(600):
        right = sum(rng.random() < 0.80 for _ in range(60))
        passes += decide(trials(right, 60 - right)).outcome is Outcome.PASS
    assert passes <= 46  # 30 expected at most, three standard deviations above


def _draw(rng):
    return (1, 0) if rng.random() < 0.80 else (0, 1)


def test_an_undecided_part_is_neither_pass_nor_fail_and_keeps_its_claim_from_passing():
    unknown = undecided_finding(CLAIM, trials(1, 2), title="x", reason="who knows")
    assert (unknown.outcome, unknown.k, unknown.n, unknown.blame) == (
        Outcome.INCONCLUSIVE,
        1,
        3,
        None,
    )
    merged = merge(CLAIM, [decide(trials(60)), unknown])
    assert merged.outcome is Outcome.INCONCLUSIVE
    assert merge(CLAIM, [decide(trials(1, 59)), unknown]).outcome is Outcome.FAIL
