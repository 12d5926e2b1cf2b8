"""Effective context: the longest length with recall >= 0.9, as an estimate with its interval.

It is an estimate, no claim. Recall is taken not to rise with length; neighbouring lengths then
bear each other out, and Bonferroni pays for choosing among them. Where the trials refute that (a
loss is shown, and beyond it recall is shown to hold), nothing beyond the loss counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fidelity.statistics.stats import ALPHA, Rate, clopper_pearson_lower, clopper_pearson_upper

RECALL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Recall at one length."""

    length_tokens: int
    rate: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveContext:
    """Lengths in tokens; None stands for "below the shortest" and "beyond the longest" tested.

    `lower`: recall is shown to hold up to here. `upper`: the shortest length at which it is shown
    to be lost; None when it is shown to be lost at none.
    """

    estimate: int | None
    lower: int | None
    upper: int | None


def effective_context(levels: Sequence[Level], recall: float = RECALL) -> EffectiveContext:
    """Return the effective context with one-sided 95 % bounds on either side."""
    ordered = sorted((lev for lev in levels if lev.rate.n), key=lambda lev: lev.length_tokens)
    fitted = _not_rising(ordered)
    held = [
        lev.length_tokens for lev, share in zip(ordered, fitted, strict=True) if share >= recall
    ]
    alpha = ALPHA / max(1, len(ordered))
    shown = [
        ordered[i].length_tokens
        for i in range(len(ordered))
        if any(_lower(ordered[i : j + 1], alpha) >= recall for j in range(i, len(ordered)))
    ]
    lost = [
        ordered[i].length_tokens
        for i in range(len(ordered))
        if any(_upper(ordered[j : i + 1], alpha) < recall for j in range(i + 1))
    ]
    upper = min(lost, default=None)
    if upper is not None and max(shown, default=0) >= upper:
        held = [length for length in held if length < upper]
        shown = [length for length in shown if length < upper]
    return EffectiveContext(
        estimate=max(held, default=None), lower=max(shown, default=None), upper=upper
    )


def _lower(levels: Sequence[Level], alpha: float) -> float:
    """Bound recall at the first of these lengths, which is the highest of them, from below."""
    return clopper_pearson_lower(
        sum(lev.rate.k_low for lev in levels), sum(lev.rate.n for lev in levels), alpha
    )


def _upper(levels: Sequence[Level], alpha: float) -> float:
    """Bound recall at the last of these lengths, which is the lowest of them, from above."""
    return clopper_pearson_upper(
        sum(lev.rate.k_high for lev in levels), sum(lev.rate.n for lev in levels), alpha
    )


def _not_rising(levels: Sequence[Level]) -> list[float]:
    """Return the least-squares shares that do not rise with length (pool adjacent violators)."""
    pools: list[tuple[float, int, int]] = []  # right, asked, levels
    for level in levels:
        pools.append((level.rate.k, level.rate.n, 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] < pools[-1][0] / pools[-1][1]:
            (k, n, size), (k_before, n_before, size_before) = pools.pop(), pools.pop()
            pools.append((k + k_before, n + n_before, size + size_before))
    return [k / n for k, n, size in pools for _ in range(size)]
