"""Holm's step-down procedure over the fail decisions of a run, and the lines that print it.

The family is every claim that was planned before the first trial, so that stopping early or
selecting afterwards buys nothing. Source: Holm 1979, Scand. J. Statist. 6, 65-70.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fidelity.statistics.stats import ALPHA


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One hypothesis in the order of its p-value."""

    name: str
    p_value: float
    adjusted: float
    rejected: bool


def holm(
    p_values: Mapping[str, float], *, family: int | None = None, alpha: float = ALPHA
) -> list[Step]:
    """Return the steps in order of their p-values, ties in the order given.

    Args:
        p_values: of the hypotheses that were looked at.
        family: how many hypotheses there are in all; those without a p-value count as 1.
        alpha: familywise error rate.
    """
    size = max(len(p_values), family or 0)
    steps: list[Step] = []
    running = 0.0
    for rank, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda pair: pair[1])):
        running = max(running, min(1.0, (size - rank) * p_value))
        steps.append(Step(name=name, p_value=p_value, adjusted=running, rejected=running < alpha))
    return steps


def lines(steps: list[Step], *, family: int, alpha: float = ALPHA) -> tuple[str, ...]:
    """Return Holm's table as text, one line a step."""
    if not steps:
        return (f"Holm over {family} planned claims at {alpha:g}: no fail decision to correct",)
    head = f"Holm over {family} planned claims at {alpha:g}, {len(steps)} fail decisions:"
    body = tuple(
        f"  {step.name}: p = {step.p_value:.3g}, adjusted {step.adjusted:.3g},"
        f" {'stands' if step.rejected else 'does not stand'}"
        for step in steps
    )
    return (head, *body)
