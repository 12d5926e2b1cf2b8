"""Divergence of two arms, against figures worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelity.statistics.divergence import (
    Flip,
    ScoredToken,
    k3,
    kl_topk,
    quantile,
    rounding_bound,
    summarize,
)

HALF, QUARTER, EIGHTH = math.log(0.5), math.log(0.25), math.log(0.125)


def arm(*rows):
    """Tokens as (own id, {id: probability})."""
    return [
        ScoredToken(own, math.log(top[own]), tuple((i, math.log(p)) for i, p in top.items()))
        for own, top in rows
    ]


class TestK3:
    def test_by_hand(self):
        # d = ln 2: 2 - 1 - ln 2; d = -ln 2: 1/2 - 1 + ln 2
        assert k3([QUARTER, HALF, HALF], [HALF, QUARTER, HALF]) == pytest.approx(
            [1 - math.log(2), math.log(2) - 0.5, 0.0]
        )

    def test_a_lost_token_is_a_large_and_finite_figure(self):
        assert k3([-0.1], [-2000.0])[0] == pytest.approx(1998.9)
        assert math.isfinite(k3([-2000.0], [0.0])[0])

    def test_arms_of_other_length_are_refused(self):
        with pytest.raises(ValueError, match="zip"):
            k3([0.0], [])

    def test_its_mean_under_p_is_the_divergence(self):
        p, q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
        exact = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        values = k3([math.log(a) for a in p], [math.log(b) for b in q])
        assert sum(a * v for a, v in zip(p, values, strict=True)) == pytest.approx(exact)


class TestTopK:
    def test_full_lists_give_the_divergence_itself(self):
        p, q = {1: HALF, 2: HALF}, {1: QUARTER, 2: math.log(0.75)}
        assert kl_topk(p, q) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))

    def test_the_rest_is_one_bucket(self):
        # listed 1/2 against 1/4; tails 1/2 against 3/4
        assert kl_topk({1: HALF}, {1: QUARTER}) == pytest.approx(
            0.5 * math.log(2) + 0.5 * math.log(2 / 3)
        )

    def test_ids_of_one_side_only_belong_to_the_rest(self):
        assert kl_topk({1: HALF, 2: QUARTER}, {1: HALF, 3: QUARTER}) == pytest.approx(0.0)

    @given(
        st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=3, max_size=8),
        st.integers(1, 7),
    )
    def test_it_never_exceeds_the_divergence_of_all(self, weights, listed):
        totals = [sum(column) for column in zip(*weights, strict=True)]
        p = [a / totals[0] for a, _ in weights]
        q = [b / totals[1] for _, b in weights]
        exact = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        found = kl_topk(
            {i: math.log(a) for i, a in enumerate(p[:listed])},
            {i: math.log(b) for i, b in enumerate(q[:listed])},
        )
        assert 0.0 <= found <= exact + 1e-9

    def test_masked_alternatives_do_not_spoil_it(self):
        assert kl_topk({1: 0.0, 2: -math.inf}, {1: 0.0, 2: -math.inf}) == 0.0


class TestSummary:
    A = arm((1, {1: 0.5, 2: 0.25}), (1, {1: 0.5, 2: 0.25}), (2, {1: 0.75, 2: 0.25}))
    B = arm((1, {1: 0.25, 2: 0.5}), (1, {1: 0.5, 2: 0.25}), (2, {1: 0.5, 2: 0.5}))

    def test_figures_by_hand(self):
        found = summarize(self.A, self.B)
        two = math.log(2)
        assert found.n == 3
        assert found.mean == pytest.approx(0.0)
        assert found.mean_abs == pytest.approx(2 * two / 3)
        assert found.mean_abs_uncertain == found.mean_abs
        assert (found.maximum, found.maximum_at) == (pytest.approx(two), 0)
        assert found.p99 == pytest.approx(two)
        assert found.kl == pytest.approx((two - 0.5 + 0 + 1 - two) / 3)
        assert found.top1_agreement == pytest.approx(2 / 3)  # of equals the lower id is the best
        assert found.first_divergence == 0
        assert found.first_divergence_gap == pytest.approx(two)
        assert found.flips == (Flip(0, pytest.approx(two)),)

    def test_equal_arms_differ_by_nothing(self):
        found = summarize(self.A, self.A)
        assert (found.mean_abs, found.kl, found.kl_top, found.maximum) == (0, 0, 0, 0)
        assert (found.top1_agreement, found.first_divergence, found.flips) == (1.0, None, ())

    def test_a_tie_that_turns_is_a_divergence_and_no_flip(self):
        a, b = arm((1, {1: 0.45, 2: 0.44})), arm((1, {1: 0.44, 2: 0.45}))
        found = summarize(a, b)
        assert found.first_divergence == 0
        assert found.first_divergence_gap == pytest.approx(math.log(0.45 / 0.44))
        assert found.flips == ()
        assert summarize(a, b, dtype="float32").flips == (Flip(0, found.first_divergence_gap),)

    def test_the_larger_gap_of_both_arms_counts(self):
        a, b = arm((1, {1: 0.45, 2: 0.44})), arm((1, {1: 0.2, 2: 0.7}))
        assert summarize(a, b).first_divergence_gap == pytest.approx(math.log(3.5))

    def test_an_unlisted_best_token_is_as_far_as_the_lowest_listed_at_least(self):
        a, b = arm((1, {1: 0.8, 2: 0.1})), arm((1, {3: 0.5, 1: 0.4}))
        assert summarize(a, b).first_divergence_gap == pytest.approx(math.log(8))

    def test_arms_of_their_own_tokens_are_compared_up_to_the_first_that_differs(self):
        a = arm((1, {1: 0.9, 2: 0.1}), (1, {1: 0.6, 2: 0.4}), (5, {5: 1.0}))
        b = arm((1, {1: 0.9, 2: 0.1}), (2, {1: 0.3, 2: 0.7}), (6, {6: 1.0}))
        found = summarize(a, b)
        assert found.n == 2
        assert found.first_divergence == 1
        assert found.maximum == pytest.approx(math.log(2))  # .6 against .3 of the same token

    def test_a_shorter_arm_diverges_at_its_end(self):
        found = summarize(self.A, self.A[:2])
        assert (found.n, found.first_divergence, found.first_divergence_gap) == (2, 2, None)

    def test_certain_tokens_do_not_dilute(self):
        a = arm(*[(1, {1: 0.99, 2: 0.01})] * 9, (1, {1: 0.5, 2: 0.5}))
        b = arm(*[(1, {1: 0.99, 2: 0.01})] * 9, (1, {1: 0.25, 2: 0.75}))
        found = summarize(a, b)
        assert found.mean_abs == pytest.approx(math.log(2) / 10)
        assert found.mean_abs_uncertain == pytest.approx(math.log(2))
        assert summarize(a[:9], b[:9]).mean_abs_uncertain is None

    def test_without_alternatives_only_the_tokens_speak(self):
        a, b = [ScoredToken(1, -1.0)], [ScoredToken(1, -1.5, ((2, -0.5),))]
        found = summarize(a, b)
        assert (found.mean, found.kl_top, found.top1_agreement) == (-0.5, None, 1.0)
        assert found.first_divergence is None

    @pytest.mark.parametrize("value", [-math.inf, math.nan])
    def test_what_is_not_finite_is_refused(self, value):
        with pytest.raises(ValueError, match="cannot be compared"):
            summarize([ScoredToken(1, value)], [ScoredToken(1, -1.0)])

    def test_empty_arms_are_refused(self):
        with pytest.raises(ValueError, match="without tokens"):
            summarize([], self.A)


def test_quantile_is_the_nearest_rank():
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert quantile(range(1, 201), 0.99) == 198
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_rounding_bounds_grow_with_the_unit_roundoff():
    bounds = [rounding_bound(name) for name in ("fp32", "fp16", "bf16", "fp8", "int4")]
    assert bounds == sorted(bounds)
    assert rounding_bound() == rounding_bound("torch.bfloat16") == rounding_bound("BF16")
    with pytest.raises(ValueError, match="unknown dtype 'fp12'; known: bfloat16"):
        rounding_bound("fp12")
