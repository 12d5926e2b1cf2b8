"""From findings to the verdict of a run, its sentence and its exit code."""

import pytest

from fidelity.records import Control, Finding
from fidelity.verdicts.verdict import judge, resolve
from fidelity.words import Blame, Concern, ControlKind, Outcome, RunVerdict


def finding(name, outcome, **fields):
    return Finding(
        claim=f"s/{name}",
        suite="s",
        title=name,
        outcome=outcome,
        reason=fields.pop("reason", "because"),
        provisional=outcome is Outcome.FAIL,
        **fields,
    )


def passes(count, start=0):
    return [finding(f"p{i}", Outcome.PASS) for i in range(start, start + count)]


def settle(findings, *, controls=(), planned=None, **options):
    by_claim = {f.claim: f for f in findings}
    planned = list(by_claim) if planned is None else planned
    resolution = resolve(by_claim, controls, planned)
    return resolution, judge(resolution, planned, **options)


def test_all_claims_hold():
    _, judgement = settle(passes(14))
    assert judgement.verdict is RunVerdict.FAITHFUL
    assert judgement.sentence == "faithful on 14 of 14 claims"
    assert judgement.exit_code == 0


def test_what_the_server_cannot_do_is_counted_and_named():
    absent = [
        finding(f"n{i}", Outcome.NOT_APPLICABLE, reason="the server has no tokenize")
        for i in range(3)
    ]
    other = finding("n9", Outcome.NOT_APPLICABLE, reason="load traffic is not allowed")
    _, judgement = settle([*passes(9), *absent, other])
    assert judgement.sentence == (
        "faithful on 9 of 13 claims; 4 not measurable here: the server has no tokenize (3 claims),"
        " load traffic is not allowed"
    )
    assert judgement.exit_code == 0


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.INCONCLUSIVE])
def test_an_open_claim_never_exits_0(outcome):
    _, judgement = settle([*passes(5), finding("x", outcome)])
    assert judgement.verdict is RunVerdict.UNDECIDED
    assert judgement.exit_code == 2


def test_claims_that_were_not_run_are_open():
    _, judgement = settle(passes(3), planned=["s/p0", "s/p1", "s/p2", "s/late"])
    assert judgement.counts["not_run"] == 1
    assert judgement.exit_code == 2
    assert "1 not run" in judgement.sentence


def test_a_run_in_which_nothing_could_be_measured_is_not_faithful():
    _, judgement = settle([finding("n", Outcome.NOT_APPLICABLE)])
    assert judgement.verdict is RunVerdict.UNDECIDED
    assert judgement.exit_code == 2
    assert settle([])[1].exit_code == 2


def test_a_promise_that_is_not_kept_is_not_faithful():
    _, judgement = settle(passes(3), unmet=("metrics",))
    assert judgement.verdict is RunVerdict.UNDECIDED
    assert judgement.exit_code == 2
    assert "absent or unproven: metrics" in judgement.sentence


def test_a_fail_that_speaks_against_the_deployment_is_unfaithful():
    bad = finding("bad", Outcome.FAIL, p_value=1e-6, blame=Blame.DEPLOYMENT)
    resolution, judgement = settle([*passes(13), bad])
    assert judgement.verdict is RunVerdict.UNFAITHFUL
    assert judgement.blame is Blame.DEPLOYMENT
    assert judgement.exit_code == 1
    assert "the deployment is to blame" in judgement.sentence
    assert [f.claim for f in resolution.changed] == ["s/bad"]
    assert not resolution.changed[0].provisional


@pytest.mark.parametrize("blame", [Blame.UNKNOWN, Blame.MODEL_LIMIT])
def test_a_weak_model_is_not_an_unfaithful_deployment_and_still_exits_1(blame):
    _, judgement = settle([*passes(3), finding("bad", Outcome.FAIL, p_value=0.0, blame=blame)])
    assert judgement.verdict is RunVerdict.UNDECIDED
    assert judgement.blame is blame
    assert judgement.exit_code == 1


def test_one_fail_of_the_deployment_outweighs_others_of_unknown_cause():
    fails = [
        finding("a", Outcome.FAIL, p_value=0.0, blame=Blame.UNKNOWN),
        finding("b", Outcome.FAIL, p_value=0.0, blame=Blame.DEPLOYMENT),
        finding("c", Outcome.ERROR),
    ]
    _, judgement = settle(fails)
    assert (judgement.verdict, judgement.exit_code) == (RunVerdict.UNFAITHFUL, 1)


def test_holm_over_all_planned_claims_undoes_a_fail_that_chance_explains():
    lucky = finding("bad", Outcome.FAIL, p_value=0.02, blame=Blame.UNKNOWN)
    resolution, judgement = settle([*passes(13), lucky])
    final = next(f for f in resolution.findings if f.claim == "s/bad")
    assert final.outcome is Outcome.INCONCLUSIVE
    assert "Holm over 14 planned claims adjusts p to 0.28" in final.reason
    assert final.blame is None
    assert judgement.exit_code == 2
    assert "does not stand" in resolution.holm[1]


def test_a_refuted_certainty_needs_no_p_value():
    resolution, judgement = settle([*passes(13), finding("leak", Outcome.FAIL)])
    assert judgement.exit_code == 1
    assert "p = 0" in resolution.holm[1]


def test_a_suite_whose_positive_control_does_not_fail_is_inconclusive():
    blind = Control(
        claim="s/p0",
        suite="s",
        control=ControlKind.POSITIVE,
        what="the fact is cut out",
        expected="fail",
        observed="right in 4 of 4 trials",
        ok=False,
    )
    resolution, judgement = settle(passes(3), controls=[blind])
    assert {f.outcome for f in resolution.findings} == {Outcome.INCONCLUSIVE}
    assert "its positive control (the fact is cut out) must fail and was right in 4 of 4" in (
        resolution.findings[0].reason
    )
    assert judgement.exit_code == 2
    elsewhere = [finding("x", Outcome.PASS)]
    _, other = settle(elsewhere, controls=[Control(**{**_fields(blind), "suite": "other"})])
    assert other.exit_code == 0


def test_a_claim_that_has_shown_its_own_sight_is_not_blinded_by_another():
    blind = Control(
        claim="s/p0",
        suite="s",
        control=ControlKind.POSITIVE,
        what="a delta is dropped",
        expected="fail",
        observed="right in 1 of 1 trials",
        ok=False,
    )
    own = Control(**{**_fields(blind), "claim": "s/p1", "ok": True})
    half = [Control(**{**_fields(blind), "claim": "s/p2", "ok": ok}) for ok in (True, False)]
    resolution, _ = settle(passes(4), controls=[blind, own, *half])
    outcomes = {f.claim: f.outcome for f in resolution.findings}
    assert [name for name, outcome in outcomes.items() if outcome is Outcome.PASS] == ["s/p1"]


def _fields(control):
    return {name: getattr(control, name) for name in control.__struct_fields__}


def test_a_fail_stays_one_beside_a_blind_control():
    blind = Control(
        claim="s/p0",
        suite="s",
        control=ControlKind.POSITIVE,
        what="w",
        expected="fail",
        observed="o",
        ok=False,
    )
    _, judgement = settle([finding("bad", Outcome.FAIL, p_value=0.0)], controls=[blind])
    assert judgement.exit_code == 1


def test_an_interrupted_run_is_marked_and_exits_130():
    _, judgement = settle(passes(5), planned=[f"s/p{i}" for i in range(14)], interrupted=True)
    assert judgement.exit_code == 130
    assert judgement.sentence.startswith("interrupted after 5 of 14 claims; undecided")


def test_settling_twice_changes_nothing():
    bad = finding("bad", Outcome.FAIL, p_value=0.02)
    first, _ = settle([*passes(13), bad])
    again, _ = settle(first.findings)
    assert again.changed == ()
    assert again.findings == first.findings


def breach(name="b"):
    return finding(
        name,
        Outcome.FAIL,
        blame=Blame.DEPLOYMENT,
        p_value=0.0,
        concern=Concern.CONFORMANCE,
    )


def test_a_breach_of_the_api_alone_fails_the_run_and_is_not_called_unfaithful():
    _, judgement = settle([*passes(9), breach()])
    assert judgement.verdict is RunVerdict.FAITHFUL
    assert judgement.exit_code == 1
    assert judgement.blame is Blame.DEPLOYMENT
    assert judgement.sentence == (
        "faithful on 9 of 10 claims; it does not conform: 1 claim about the API fails, and the"
        " deployment is to blame (first: b)"
    )


def test_a_breach_beside_open_claims_leaves_the_verdict_open():
    _, judgement = settle([*passes(3), breach(), finding("x", Outcome.INCONCLUSIVE)])
    assert judgement.verdict is RunVerdict.UNDECIDED
    assert judgement.exit_code == 1
    assert "none about reading fails; it does not conform" in judgement.sentence


def test_a_breach_beside_a_loss_of_unknown_blame_does_not_blame_the_deployment_for_it():
    lost = finding("lost", Outcome.FAIL, blame=Blame.UNKNOWN, p_value=1e-9)
    _, judgement = settle([*passes(3), breach(), lost])
    assert judgement.verdict is RunVerdict.UNDECIDED
    assert judgement.blame is Blame.UNKNOWN
    assert "1 of them about the API alone, where the deployment is to blame" in judgement.sentence
