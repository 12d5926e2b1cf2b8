"""Comparisons of two arms: known values, the stated error rates, agreement of test and bounds."""

import random
from functools import cache

import pytest
from scipy.stats import wilcoxon

from fidelity.statistics.paired import (
    Pairs,
    cluster_bootstrap,
    difference_bounds,
    inferiority_p,
    mcnemar_exact,
    noninferiority_p,
    sign_test_worse,
    signed_ranks_p,
    tango_score,
)


def test_six_discordant_pairs_one_way_are_significant_and_five_are_not():
    assert mcnemar_exact(6, 0) == pytest.approx(2 / 64)
    assert mcnemar_exact(5, 0) == pytest.approx(2 / 32)
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(3, 3) == 1.0
    assert sign_test_worse(5, 0) == pytest.approx(1 / 32)
    assert sign_test_worse(0, 5) == 1.0


def test_tango_score_is_mcnemars_at_no_difference():
    # at loss 0 the score is (b - c) / sqrt(b + c)
    assert tango_score(Pairs(n=50, lost=9, gained=4), 0.0) == pytest.approx(5 / 13**0.5)


def test_the_score_bounds_of_a_published_table():
    # Bentur et al. 2009 as in Fagerland, Lydersen & Laake: 1, 1, 7, 12; -0.286 (-0.517, -0.026)
    pairs = Pairs(n=21, lost=7, gained=1)
    lower, upper = difference_bounds(pairs, alpha=0.025)
    assert pairs.difference == pytest.approx(-0.286, abs=5e-4)
    assert (lower, upper) == pytest.approx((-0.517, -0.026), abs=1e-3)


def test_clean_pairs_show_harmlessness_from_29_on_and_never_below():
    assert noninferiority_p(Pairs(n=29, lost=0, gained=0), 0.10) < 0.05
    assert noninferiority_p(Pairs(n=28, lost=0, gained=0), 0.10) > 0.05


def test_losses_beyond_the_margin_are_damage_and_losses_at_the_margin_are_not():
    assert inferiority_p(Pairs(n=40, lost=16, gained=0), 0.10) < 1e-3
    assert inferiority_p(Pairs(n=40, lost=4, gained=0), 0.10) > 0.3
    assert inferiority_p(Pairs(n=40, lost=0, gained=0), 0.10) > 0.9
    assert inferiority_p(Pairs(n=0, lost=0, gained=0), 0.10) == 1.0


def test_both_tests_keep_their_error_rate_at_the_margin_whatever_the_nuisance():
    """At a true loss of exactly the margin each test errs in 5 % of 250 runs, plus noise."""
    rng = random.Random(7)  # noqa: S311 - a simulation
    for gained_rate in (0.0, 0.05, 0.2):
        harmless = damaged = 0
        for _ in range(250):
            draws = rng.choices(
                ("lost", "gained", "same"),
                (0.10 + gained_rate, gained_rate, 0.90 - 2 * gained_rate),
                k=30,
            )
            pairs = Pairs(n=30, lost=draws.count("lost"), gained=draws.count("gained"))
            harmless += _cached_noninferiority(pairs)
            damaged += _cached_inferiority(pairs)
        assert harmless <= 23  # 12.5 expected at most, three standard deviations above
        assert damaged <= 23


@cache
def _cached_noninferiority(pairs):
    return noninferiority_p(pairs, 0.10) < 0.05


@cache
def _cached_inferiority(pairs):
    return inferiority_p(pairs, 0.10) < 0.05


def test_the_score_approximation_for_many_pairs_is_close_to_the_exact_test():
    exact = noninferiority_p(Pairs(n=200, lost=12, gained=4), 0.10)
    approximate = noninferiority_p(Pairs(n=201, lost=12, gained=4), 0.10)
    assert approximate == pytest.approx(exact, rel=0.35)
    assert approximate < 0.05


def test_the_bootstrap_resamples_clusters_and_is_deterministic():
    clusters = [[0.2] * 50, [-0.1] * 2, [0.0] * 2, [0.1] * 2] * 5
    first = cluster_bootstrap(clusters, seed=3)
    assert first == cluster_bootstrap(clusters, seed=3)
    mean, low, high = first
    assert mean == pytest.approx((50 * 0.2 - 0.2 + 0.2) / 56)
    assert low < mean < high
    # 280 differences in 20 clusters: the interval is far wider than 280 independent ones' would be
    assert high - low > 0.03


def test_a_bootstrap_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one cluster"):
        cluster_bootstrap([], seed=0)
    with pytest.raises(ValueError, match="empty"):
        cluster_bootstrap([[1.0], []], seed=0)


def test_signed_ranks_count_every_choice_of_signs():
    # three of three: 1 of 8 choices, two-sided; ranks 1, 2, 3
    assert signed_ranks_p([-1.0, -2.0, -3.0]) == pytest.approx(2 / 8)
    # the smallest alone is positive: sums 0 and 1, 2 of 8 choices
    assert signed_ranks_p([1.0, -2.0, -3.0]) == pytest.approx(4 / 8)
    # a zero is ranked first and dropped: ranks 2 and 3
    assert signed_ranks_p([0.0, -2.0, -3.0]) == pytest.approx(2 / 4)
    assert signed_ranks_p([]) == signed_ranks_p([0.0, 0.0]) == 1.0


def test_signed_ranks_far_out_agree_with_scipys():
    draw = random.Random(3)  # noqa: S311 - data, not secrets
    differences = [draw.gauss(0.4, 1.0) for _ in range(60)]
    exact = wilcoxon(differences, correction=True, method="approx").pvalue
    assert signed_ranks_p(differences) == pytest.approx(exact, rel=0.02)


def test_signed_ranks_see_size_where_signs_do_not():
    differences = [-8.0, -6.0, -9.0, -7.0, -5.0, 0.1, 0.2, -6.5, 0.3, -7.5]
    assert signed_ranks_p(differences) < 0.05 < mcnemar_exact(7, 3)
