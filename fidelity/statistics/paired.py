"""Comparing two arms: exact McNemar, non-inferiority, and a bootstrap over clusters.

`lost` counts pairs that were right in the control arm only, `gained` pairs that were right in the
treated arm only. A missing difference is not equality: harmless means non-inferior in a margin.
"""

import bisect
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import bdtr, bdtrc, betaincinv, ndtri

from fidelity.statistics.stats import ALPHA, detectable_share

EXACT_PAIRS = 200
"""Up to so many pairs the exact test is affordable (n * n / 2 tables); beyond, Tango's score."""

EXACT_RANKS = 25
"""Up to so many graded differences all choices of signs are counted."""

_NUISANCE_POINTS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Outcomes of the same probes in two arms."""

    n: int
    lost: int
    gained: int

    @property
    def difference(self) -> float:
        """Rate of the treated arm minus rate of the control arm."""
        return (self.gained - self.lost) / self.n if self.n else math.nan


def mcnemar_exact(lost: int, gained: int) -> float:
    """Return the two-sided exact p-value of "both directions are equally likely" (sign test)."""
    n = lost + gained
    if n == 0:
        return 1.0
    return min(1.0, 2.0 * float(bdtr(min(lost, gained), n, 0.5)))


def sign_test_worse(lost: int, gained: int) -> float:
    """Return the one-sided exact p-value of "no more is lost than gained"."""
    n = lost + gained
    return 1.0 if n == 0 else float(bdtr(gained, n, 0.5))


def signed_ranks_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of "graded differences of pairs lie around 0".

    Wilcoxon's signed ranks; zeros are ranked and then dropped. Exact over all signs up to
    `EXACT_RANKS` differences that are not zero, normal beyond. Source: Pratt 1959, JASA 54,
    655-667.
    """
    sizes = sorted(abs(d) for d in differences)
    # twice the mean rank of equal sizes, a whole number
    rank = {size: 2 * sizes.index(size) + sizes.count(size) + 1 for size in sizes}
    ranks = [(rank[abs(d)], d > 0) for d in differences if d != 0]
    if not ranks:
        return 1.0
    positive = sum(value for value, above in ranks if above)
    total = sum(value for value, _ in ranks)
    less = min(positive, total - positive)
    if len(ranks) <= EXACT_RANKS:
        return min(1.0, 2.0 * _share_of_signs(tuple(value for value, _ in ranks), less))
    spread = math.sqrt(sum(value * value for value, _ in ranks)) / 2
    return min(1.0, math.erfc((total / 2 - less - 1) / spread / math.sqrt(2)))


def _share_of_signs(ranks: Sequence[int], most: int) -> float:
    """Return the share of all choices of signs whose positive ranks add up to at most `most`."""
    ways = {0: 1}
    for value in ranks:
        grown = dict(ways)
        for held, count in ways.items():
            if held + value <= most:
                grown[held + value] = grown.get(held + value, 0) + count
        ways = grown
    return float(sum(ways.values()) / 2 ** len(ranks))


def tango_score(pairs: Pairs, loss: float) -> float:
    """Return Tango's score statistic of H0 "P(lost) - P(gained) = loss"; low speaks for less loss.

    Source: Tango 1998, Statistics in Medicine 17, 891-908 (constrained maximum likelihood).
    """
    n, b, c = pairs.n, pairs.lost, pairs.gained
    linear = -b - c + (2 * n - b + c) * loss
    constant = -c * loss * (1 - loss)
    root = math.sqrt(max(0.0, linear * linear - 8 * n * constant))
    gained = max(0.0, (root - linear) / (4 * n))
    variance = n * (2 * gained + loss * (1 - loss))
    excess = b - c - n * loss
    if variance <= 1e-15:
        return 0.0 if abs(excess) < 1e-12 else math.copysign(math.inf, excess)
    return excess / math.sqrt(variance)


def noninferiority_p(pairs: Pairs, margin: float) -> float:
    """Return the p-value of "the treated arm is worse by margin or more"; small shows harmless.

    Exact and unconditional up to `EXACT_PAIRS` pairs: tables are ordered by Tango's score, the
    nuisance parameter is maximised over. Source: Hsueh, Liu & Chen 2001, Biometrics 57, 478-483.
    """
    return _score_test_p(pairs, margin)


def inferiority_p(pairs: Pairs, margin: float) -> float:
    """Return the p-value of "the treated arm is worse by margin at most"; small shows damage."""
    # the same test with the arms exchanged: H0 P(gained) - P(lost) >= -margin
    return _score_test_p(Pairs(n=pairs.n, lost=pairs.gained, gained=pairs.lost), -margin)


@lru_cache(maxsize=4096)
def _score_test_p(pairs: Pairs, loss: float) -> float:
    if pairs.n == 0:
        return 1.0
    observed = tango_score(pairs, loss)
    if pairs.n > EXACT_PAIRS:
        return 0.5 * math.erfc(-observed / math.sqrt(2))
    rows = _tables_as_extreme(pairs.n, loss, observed)
    low = max(0.0, -loss)  # P(gained) = q, P(lost) = q + loss: both >= 0, together <= 1
    high = (1.0 - loss) / 2.0
    steps = [low + (high - low) * (i + 0.5) / _NUISANCE_POINTS for i in range(_NUISANCE_POINTS)]
    return min(1.0, max(_probability(rows, pairs.n, q, loss) for q in (low, *steps, high)))


_Rows = list[list[tuple[int, int]]]
"""By lost pairs: ranges (first, last) of gained ones."""


def _tables_as_extreme(n: int, loss: float, observed: float) -> _Rows:
    """Return all tables with a score <= observed."""
    rows: _Rows = []
    for lost in range(n + 1):
        ranges: list[tuple[int, int]] = []
        for gained in range(n - lost + 1):
            if tango_score(Pairs(n=n, lost=lost, gained=gained), loss) <= observed + 1e-9:
                joined = bool(ranges) and ranges[-1][1] == gained - 1
                ranges[-1:] = (
                    [(ranges[-1][0], gained)] if joined else [*ranges[-1:], (gained, gained)]
                )
        rows.append(ranges)
    return rows


def _probability(rows: _Rows, n: int, q: float, loss: float) -> float:
    """Return the probability of these tables: lost is binomial, and gained among the others."""
    p_lost = q + loss
    p_gained = min(1.0, q / (1.0 - p_lost)) if p_lost < 1.0 else 0.0
    total = 0.0
    for lost, ranges in enumerate(rows):
        if not ranges:
            continue
        rest = n - lost
        inside = sum(
            _at_least(first, rest, p_gained) - _at_least(last + 1, rest, p_gained)
            for first, last in ranges
        )
        total += _exactly(lost, n, p_lost) * inside
    return total


def _at_least(k: int, n: int, p: float) -> float:
    if k <= 0:
        return 1.0
    return 0.0 if k > n else float(bdtrc(k - 1, n, p))


def _exactly(k: int, n: int, p: float) -> float:
    if p in {0.0, 1.0}:
        return float(k == n * p)
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))


@lru_cache(maxsize=256)
def detectable_loss(n: int, margin: float, power: float = 0.8) -> float | None:
    """Return the smallest one-way loss that n pairs turn into a fail with chance `power`.

    One-way: nothing is gained by chance, as with a model that answers well. None when even the
    loss of every pair would not fail so few.
    """

    def fails(lost: int) -> bool:
        return inferiority_p(Pairs(n=n, lost=lost, gained=0), margin) < ALPHA

    failing = bisect.bisect_left(range(n + 1), x=True, key=fails)
    if failing > n:
        return None
    # P(at least `failing` lost | loss) = power
    return float(betaincinv(failing, n - failing + 1, power)) if failing else 0.0


def sentence_of_pairs(n: int, margin: float) -> str:
    """Return what a pass on so many pairs could have seen."""
    text = (
        f"{n} pairs show damage to {detectable_share(n):.1%} of such requests at least once with"
        f" chance 95 %; a loss of {margin:.2f} or more passes with chance 5 % at most"
    )
    loss = detectable_loss(n, margin)
    return text if loss is None else f"{text}, one of {loss:.2f} or more fails with chance 80 %"


def difference_bounds(pairs: Pairs, alpha: float = ALPHA) -> tuple[float, float]:
    """Return Tango's one-sided score bounds (lower, upper) of the difference, for display."""
    if pairs.n == 0:
        return (-1.0, 1.0)
    z = float(ndtri(1 - alpha))
    # the difference is -loss: its lower bound is the greatest loss that is not yet refuted
    return (-_solve(pairs, -z), -_solve(pairs, z))


def _solve(pairs: Pairs, target: float) -> float:
    """Return the loss at which the score, which falls with the loss, equals `target`."""
    low, high = -1.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if tango_score(pairs, middle) > target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def cluster_bootstrap(
    differences: Sequence[Sequence[float]],
    *,
    seed: int,
    resamples: int = 2000,
    alpha: float = ALPHA,
) -> tuple[float, float, float]:
    """Return (mean, lower, upper) of graded paired differences, resampling whole clusters.

    Percentile bounds, each one-sided at `alpha`; deterministic in `seed`. Below about ten clusters
    the bounds are too narrow: use a sign test there.

    Raises:
        ValueError: no cluster, or an empty one.
    """
    if not differences or not all(differences):
        raise ValueError("a bootstrap needs at least one cluster, and none may be empty")
    rng = random.Random(seed)  # noqa: S311 - resampling, not secrets
    sums = [(sum(cluster), len(cluster)) for cluster in differences]
    means = []
    for _ in range(resamples):
        drawn = rng.choices(sums, k=len(sums))
        means.append(sum(total for total, _ in drawn) / sum(size for _, size in drawn))
    means.sort()
    low = means[max(0, math.floor(alpha * resamples))]
    high = means[min(resamples - 1, math.ceil((1 - alpha) * resamples) - 1)]
    return (sum(t for t, _ in sums) / sum(s for _, s in sums), low, high)
