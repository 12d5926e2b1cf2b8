"""Bounds and counts against numbers worked out elsewhere."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelity.statistics.stats import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    design_effect,
    detectable_rate,
    detectable_share,
    p_at_least,
    p_at_most,
    rate_of,
    right_needed,
    sentence_of_power,
    trials_needed,
    wilson,
)


@pytest.mark.parametrize(("k", "n"), [(15, 15), (59, 59), (14, 14), (22, 22)])
def test_the_lower_bound_of_a_clean_sheet_is_the_nth_root_of_alpha(k, n):
    assert clopper_pearson_lower(k, n) == pytest.approx(0.05 ** (1 / n), abs=1e-12)


def test_bounds_agree_with_published_one_sided_values():
    assert clopper_pearson_lower(15, 15) == pytest.approx(0.81896, abs=1e-5)
    assert clopper_pearson_lower(59, 59) == pytest.approx(0.95049, abs=1e-5)
    # two-sided 90 % interval of 7 in 10, e.g. Hahn & Meeker: one-sided 95 % on either side
    assert clopper_pearson_lower(7, 10) == pytest.approx(0.3934, abs=1e-4)
    assert clopper_pearson_upper(7, 10) == pytest.approx(0.9127, abs=1e-4)
    assert clopper_pearson_lower(0, 10) == 0.0
    assert clopper_pearson_upper(10, 10) == 1.0


@pytest.mark.parametrize(("k", "n", "low"), [(15, 15, 0.796), (30, 30, 0.886), (60, 60, 0.940)])
def test_wilson_of_clean_sheets(k, n, low):
    lower, upper = wilson(k, n)
    assert lower == pytest.approx(low, abs=5e-4)
    assert upper == 1.0


def test_trials_needed_for_the_claims_of_the_budgets():
    assert trials_needed(0.80) == 14
    assert trials_needed(0.95) == 59
    assert trials_needed(0.80, misses=1) == 22


def test_right_needed_says_when_even_a_clean_sheet_cannot_pass():
    assert right_needed(13, 0.80) is None
    assert right_needed(22, 0.80) == 21
    assert right_needed(59, 0.95) == 59


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_upper_bound_below_the_claim_and_a_p_value_below_alpha_are_one_decision(pair):
    k, n = pair
    for threshold in (0.5, 0.8, 0.95):
        assert (clopper_pearson_upper(k, n) < threshold) == (p_at_least(k, n, threshold) < 0.05)
        assert (clopper_pearson_lower(k, n) > threshold) == (p_at_most(k, n, threshold) < 0.05)


def test_exact_p_values_of_a_small_case():
    assert p_at_least(0, 3, 0.5) == pytest.approx(1 / 8)
    assert p_at_least(1, 3, 0.5) == pytest.approx(4 / 8)
    assert p_at_most(3, 3, 0.5) == pytest.approx(1 / 8)


def test_one_failure_is_seen_with_the_published_number_of_probes():
    # 11, 29, 59 and 299 probes for 25, 10, 5 and 1 %
    for n, share in ((11, 0.25), (29, 0.10), (59, 0.05), (299, 0.01)):
        assert detectable_share(n) <= share < detectable_share(n - 1)


def test_the_detectable_rate_fails_with_the_stated_chance():
    n, threshold = 22, 0.80
    rate = detectable_rate(n, threshold)
    most = max(k for k in range(n + 1) if p_at_least(k, n, threshold) < 0.05)
    assert p_at_least(most, n, rate) == pytest.approx(0.8, abs=1e-9)
    assert detectable_rate(1, 0.5) == 0.0


def test_no_rate_is_made_of_impossible_counts():
    with pytest.raises(ValueError, match="3 of 2"):
        clopper_pearson_lower(3, 2)
    with pytest.raises(ValueError, match="0 of 0"):
        clopper_pearson_upper(0, 0)


def test_a_cluster_counts_once_and_a_partly_right_one_is_rounded_against_the_decision():
    rate = rate_of([("a", True)] * 10 + [("b", True), ("b", False)] + [("", True)] * 3)
    assert (rate.n, rate.trials) == (5, 15)
    assert rate.k == pytest.approx(4.5)
    assert (rate.k_low, rate.k_high) == (4, 5)


def test_thirds_that_add_up_to_a_whole_are_whole():
    rate = rate_of([(name, i < 1) for name in "abc" for i in range(3)])
    assert rate.k_low == rate.k_high == 1
    assert rate_of([]).n == 0
    assert math.isnan(rate_of([]).share)


def test_design_effect_of_identical_and_of_independent_members():
    assert design_effect([[True] * 4, [False] * 4, [True] * 4]) == pytest.approx(4.0)
    assert design_effect([[True, False], [True, False], [False, True]]) == 1.0
    assert design_effect([[True] * 4, [True] * 4]) == 4.0  # cannot be estimated: the worst
    assert design_effect([[True], [False]]) == 1.0


def test_a_pass_says_what_it_could_have_seen():
    sentence = sentence_of_power(rate_of([("", True)] * 59), 0.95)
    assert sentence.startswith("59 trials show damage to 5.0% of such requests")
    clustered = sentence_of_power(rate_of([("a", True)] * 30 + [("b", True)] * 30), 0.8)
    assert clustered.startswith("2 clusters (60 trials)")
