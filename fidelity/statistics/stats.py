"""Bounds, tests and detectable effects of a proportion, all exact unless the name says otherwise.

Outcomes use one-sided 95 % Clopper-Pearson bounds; Wilson is for display. Trials of one cluster
count as one observation. scipy.special supplies the incomplete beta function.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.special import bdtr, bdtrc, betaincinv

ALPHA = 0.05
"""Of every one-sided bound and test in this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`k` of `n` observations were right; for clustered trials both count clusters.

    `k_low` <= k <= `k_high` are whole: a cluster that is partly right is counted down for a lower
    bound and up for an upper one. `trials` is the number of single trials behind it.
    """

    k: float
    n: int
    k_low: int
    k_high: int
    trials: int

    @property
    def share(self) -> float:
        """The estimate k/n; NaN when nothing was observed."""
        return self.k / self.n if self.n else math.nan


def rate_of(results: Iterable[tuple[str, bool]]) -> Rate:
    """Return the rate of (cluster, right) pairs; cluster "" makes a trial its own cluster.

    Clusters count, not trials: a cluster's trials are taken as fully dependent (design effect =
    cluster size), which no data can refute when all of them are right.
    """
    clusters: dict[str, list[bool]] = {}
    singles = 0
    right_singles = 0
    for cluster, right in results:
        if cluster:
            clusters.setdefault(cluster, []).append(right)
        else:
            singles += 1
            right_singles += right
    means = [sum(members) / len(members) for members in clusters.values()]
    shared = sum(means)
    nearest = round(shared)  # a sum of thirds is whole up to rounding
    low, high = math.floor(shared), math.ceil(shared)
    if math.isclose(shared, nearest, abs_tol=1e-9):
        shared = low = high = nearest
    return Rate(
        k=right_singles + shared,
        n=singles + len(clusters),
        k_low=right_singles + low,
        k_high=right_singles + high,
        trials=singles + sum(len(members) for members in clusters.values()),
    )


def design_effect(clusters: Sequence[Sequence[bool]]) -> float:
    """Return 1 + (mean size - 1) * ICC by one-way analysis of variance, at least 1; for display.

    With no variation at all the intraclass correlation cannot be estimated and counts as 1.
    """
    members = [float(right) for cluster in clusters for right in cluster]
    total, groups = len(members), len(clusters)
    if groups in {0, total}:
        return 1.0
    size = (total - sum(len(c) ** 2 for c in clusters) / total) / max(1, groups - 1)
    mean = sum(members) / total
    means = [sum(c) / len(c) for c in clusters]
    between = sum(len(c) * (m - mean) ** 2 for c, m in zip(clusters, means, strict=True))
    within = sum((float(x) - m) ** 2 for c, m in zip(clusters, means, strict=True) for x in c)
    if between + within == 0.0 or groups == 1:
        return total / groups
    ms_between, ms_within = between / (groups - 1), within / (total - groups)
    correlation = (ms_between - ms_within) / (ms_between + (size - 1) * ms_within)
    return max(1.0, 1.0 + (total / groups - 1.0) * correlation)


def clopper_pearson_lower(k: int, n: int, alpha: float = ALPHA) -> float:
    """Return the exact one-sided lower bound of a proportion with k of n right."""
    _check(k, n)
    return 0.0 if k == 0 else float(betaincinv(k, n - k + 1, alpha))


def clopper_pearson_upper(k: int, n: int, alpha: float = ALPHA) -> float:
    """Return the exact one-sided upper bound of a proportion with k of n right."""
    _check(k, n)
    return 1.0 if k == n else float(betaincinv(k + 1, n - k, 1.0 - alpha))


def wilson(k: float, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Return Wilson's two-sided 95 % interval, for display."""
    if n == 0:
        return (0.0, 1.0)
    share = k / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # at either end the formula is exact, and rounding must not show as .9999
    return (0.0 if k == 0 else centre - half, 1.0 if k == n else centre + half)


def p_at_least(k: int, n: int, threshold: float) -> float:
    """Return the p-value of "the rate is >= threshold": P(at most k right | threshold)."""
    _check(k, n)
    return 1.0 if k == n else float(bdtr(k, n, threshold))


def p_at_most(k: int, n: int, threshold: float) -> float:
    """Return the p-value of "the rate is <= threshold": P(at least k right | threshold)."""
    _check(k, n)
    return 1.0 if k == 0 else float(bdtrc(k - 1, n, threshold))


def right_needed(n: int, threshold: float, alpha: float = ALPHA) -> int | None:
    """Return the fewest right answers of n whose lower bound reaches the threshold, or None."""
    if clopper_pearson_lower(n, n, alpha) < threshold:
        return None
    k = n
    while k > 0 and clopper_pearson_lower(k - 1, n, alpha) >= threshold:
        k -= 1
    return k


def trials_needed(threshold: float, misses: int = 0, alpha: float = ALPHA) -> int:
    """Return the fewest trials that can still pass ">= threshold" with that many misses."""
    n = misses + 1
    while clopper_pearson_lower(n - misses, n, alpha) < threshold:
        n += 1
    return n


def detectable_share(n: int, alpha: float = ALPHA) -> float:
    """Return the share of damaged requests that n trials see at least once, chance 1 - alpha."""
    return 1.0 if n == 0 else 1.0 - alpha ** (1.0 / n)


def detectable_rate(n: int, threshold: float, power: float = 0.8, alpha: float = ALPHA) -> float:
    """Return the highest true rate that n trials turn into a fail with chance `power`.

    0.0 when even a rate of zero could not fail so few trials.
    """
    most = -1  # the most right answers that still fail
    while most + 1 <= n and p_at_least(most + 1, n, threshold) < alpha:
        most += 1
    return 0.0 if most < 0 else clopper_pearson_upper(most, n, power) if most < n else 1.0


def sentence_of_power(rate: Rate, threshold: float) -> str:
    """Return what a pass on this rate could have seen."""
    if rate.n == 0:
        return "nothing was observed"
    seen, low = detectable_share(rate.n), detectable_rate(rate.n, threshold)
    unit = "trials" if rate.n == rate.trials else f"clusters ({rate.trials} trials)"
    text = (
        f"{rate.n} {unit} show damage to {seen:.1%} of such requests at least once with chance"
        f" 95 %; a true rate of {threshold:.2f} or less passes with chance 5 % at most"
    )
    return text + (f", one of {low:.2f} or less fails with chance 80 %" if low > 0 else "")


def _check(k: int, n: int) -> None:
    if not 0 <= k <= n or n < 1:
        raise ValueError(f"{k} of {n} is no rate: 0 <= k <= n and n >= 1 are needed")
