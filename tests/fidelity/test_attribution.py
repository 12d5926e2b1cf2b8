"""Who is to blame for a failed recall, once twins, controls and a golden have spoken."""

import pytest

from fidelity.records import Exchange, Finding, Part, Trial
from fidelity.verdicts.attribution import attributed, longest_miss, oracle_of
from fidelity.verdicts.verdict import judge, resolve
from fidelity.words import Blame, Concern, Oracle, Outcome, RunVerdict


def finding(claim, outcome, **fields):
    return Finding(
        claim=claim,
        suite=claim.partition("/")[0],
        title=claim,
        outcome=outcome,
        reason="because",
        **fields,
    )


def recall(blame=Blame.UNKNOWN, **fields):
    return finding("needle_sweep/recall", Outcome.FAIL, blame=blame, p_value=1e-9, **fields)


def rows(*lengths, texts=2):
    return [{"length_tokens": length, "texts": texts} for length in lengths]


def golden(path="prefill", outcome=Outcome.PASS, longest=4096, texts=2):
    lengths = [*rows(512), *rows(longest, texts=texts)]
    return finding(f"golden/{path}", outcome, profile={"path": path, "lengths": lengths})


def goldens(**options):
    """What a golden says of both paths, and that it repeats itself, which has no lengths."""
    both = (golden(path, **options) for path in ("prefill", "decode"))
    return (*both, finding("golden/repeat", Outcome.PASS))


def blame_of(*findings, **options):
    return attributed(findings, **options)[0].blame


def test_a_failed_recall_alone_blames_nobody():
    assert blame_of(recall()) is Blame.UNKNOWN


@pytest.mark.parametrize("suite", ["twins_phases", "golden", "stateful"])
def test_a_failed_twin_or_golden_makes_it_the_deployment(suite):
    other = finding(f"{suite}/x", Outcome.FAIL, blame=Blame.DEPLOYMENT)
    (found, _) = attributed([recall(), other])
    assert found.blame is Blame.DEPLOYMENT
    assert f"{suite}/x fails too" in found.reason


def test_a_twin_that_is_inconclusive_or_fails_without_blame_says_nothing():
    assert blame_of(recall(), finding("twins_a/x", Outcome.INCONCLUSIVE)) is Blame.UNKNOWN
    assert blame_of(recall(), finding("twins_a/x", Outcome.FAIL)) is Blame.UNKNOWN


def test_clean_twins_leave_it_open_since_both_arms_may_be_damaged_alike():
    assert blame_of(recall(), finding("twins_cache/x", Outcome.PASS)) is Blame.UNKNOWN


def test_a_golden_that_agrees_makes_it_the_models_limit_as_far_as_it_looked():
    assert blame_of(recall(), *goldens()) is Blame.MODEL_LIMIT
    missed = {"needle_sweep/recall": 4096}
    assert blame_of(recall(), *goldens(), longest_miss=missed) is Blame.MODEL_LIMIT
    missed = {"needle_sweep/recall": 4097}
    assert blame_of(recall(), *goldens(), longest_miss=missed) is Blame.UNKNOWN
    assert blame_of(recall(), *goldens(outcome=Outcome.INCONCLUSIVE)) is Blame.UNKNOWN


def test_a_golden_clears_no_path_that_it_did_not_look_at():
    scored, continued = golden(), golden("decode", longest=1024)
    assert blame_of(recall(), scored) is Blame.UNKNOWN
    assert blame_of(recall(), continued) is Blame.UNKNOWN
    for tokens, blame in ((1024, Blame.MODEL_LIMIT), (1025, Blame.UNKNOWN)):
        missed = {"needle_sweep/recall": tokens}
        assert blame_of(recall(), scored, continued, longest_miss=missed) is blame


def test_one_text_of_a_length_clears_nothing():
    missed = {"needle_sweep/recall": 513}
    assert blame_of(recall(), *goldens(texts=1), longest_miss=missed) is Blame.UNKNOWN
    assert blame_of(recall(), *goldens(), longest_miss=missed) is Blame.MODEL_LIMIT


def test_a_twin_that_fails_at_the_shape_of_an_answer_accuses_nobody_of_reading():
    shape = finding(
        "twins_shapes/x", Outcome.FAIL, blame=Blame.DEPLOYMENT, concern=Concern.CONFORMANCE
    )
    assert blame_of(recall(), shape) is Blame.UNKNOWN


def test_what_is_known_already_is_kept():
    assert blame_of(recall(Blame.DEPLOYMENT), *goldens()) is Blame.DEPLOYMENT


def test_conformance_is_never_blamed_on_the_model():
    plumbing = finding(
        "plumbing/x", Outcome.FAIL, blame=Blame.DEPLOYMENT, concern=Concern.CONFORMANCE
    )
    assert attributed([plumbing, *goldens()])[0] == plumbing


def test_failed_parts_get_the_blame_of_their_claim():
    parts = (
        Part(title="a", outcome=Outcome.FAIL, reason="r", blame=Blame.UNKNOWN),
        Part(title="b", outcome=Outcome.PASS, reason="r"),
    )
    other = finding("twins/x", Outcome.FAIL, blame=Blame.DEPLOYMENT)
    (found, _) = attributed([recall(parts=parts), other])
    assert [part.blame for part in found.parts] == [Blame.DEPLOYMENT, None]


def test_the_verdict_of_a_run_follows_and_a_second_settling_changes_nothing():
    twin = finding("twins/x", Outcome.FAIL, blame=Blame.DEPLOYMENT, p_value=0.0)
    planned = ["needle_sweep/recall", "twins/x"]
    first = resolve({f.claim: f for f in (recall(), twin)}, [], planned)
    assert judge(first, planned).verdict is RunVerdict.UNFAITHFUL
    assert [f.claim for f in first.changed] == ["needle_sweep/recall"]
    again = resolve({f.claim: f for f in first.findings}, [], planned)
    assert again.changed == ()


def test_the_longest_miss_is_what_the_server_counted():
    def trial(name, ok, tokens):
        exchange = Exchange(request_id="r", prompt_tokens=tokens)
        return Trial(id=name, claim="c", suite="s", probe="p", ok=ok, exchanges=(exchange,))

    made = [trial("a", True, 900), trial("b", False, 300), trial("c", None, 800)]
    assert longest_miss(made) == {"c": 300}


def test_a_miss_out_of_a_cache_is_longer_than_any_golden():
    exchange = Exchange(request_id="r", prompt_tokens=300, cached_tokens=64)
    made = [Trial(id="a", claim="c", suite="s", probe="p", ok=False, exchanges=(exchange,))]
    missed = {"needle_sweep/recall": longest_miss(made)["c"]}
    assert blame_of(recall(), *goldens(), longest_miss=missed) is Blame.UNKNOWN


def test_oracles_are_told_by_the_suite():
    assert oracle_of("golden") is Oracle.GOLDEN
    assert oracle_of("twins_batch") is Oracle.TWIN
    assert oracle_of("stateful") is Oracle.TWIN
    assert oracle_of("needle_sweep") is Oracle.ANSWER
