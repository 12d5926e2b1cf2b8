"""The noise floor: what two identical requests of one server, in one run, differ by.

A floor can itself be a fault. No twin passes on a floor that is one, however small its own
difference is beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scipy.special import stdtr

from fidelity.statistics.divergence import Flip
from fidelity.statistics.stats import ALPHA
from fidelity.words import Outcome

FLOOR_NATS = 0.05
"""Most that identical requests may differ by: mean |difference| over uncertain tokens."""


class NullArm(Protocol):
    """What is needed of a comparison of two identical requests; `Summary` is one."""

    @property
    def mean_abs_uncertain(self) -> float | None:
        """Mean |difference| over tokens of top-1 probability < .9, nats; None: no such token."""

    @property
    def flips(self) -> Sequence[Flip]:
        """Where the best token differs by more than the dtype can round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorFinding:
    """What the null arms say of the server's own noise.

    Attributes:
        outcome: pass, fail, or inconclusive (too high, but not shown beyond the error rate).
        nats: mean over the prompts, each counted once; 0 when no token was uncertain.
        flips: best tokens that changed between identical requests.
        pairs: of identical requests.
        p_value: of "the mean is FLOOR_NATS at most"; 0 for a flip, which refutes by itself.
        reason: one sentence.
    """

    outcome: Outcome
    nats: float
    flips: int
    pairs: int
    p_value: float
    reason: str


def judge_floor(null_arms: Sequence[NullArm]) -> FloorFinding:
    """Decide whether the null arms of a run are noise that a healthy server may have.

    Prompts are the clusters: one mean each, and Student's t over them. Without a null arm nothing
    is known of the noise, which is inconclusive.
    """
    means = [arm.mean_abs_uncertain for arm in null_arms if arm.mean_abs_uncertain is not None]
    nats = sum(means) / len(means) if means else 0.0
    flips = sum(len(arm.flips) for arm in null_arms)
    p_value = 0.0 if flips else _p_at_most(means, FLOOR_NATS)
    if not null_arms:
        outcome, reason = Outcome.INCONCLUSIVE, "no two identical requests were compared"
    elif flips:
        outcome = Outcome.FAIL
        reason = (
            f"identical requests changed their best token {flips} times by more than rounding can"
        )
    elif nats <= FLOOR_NATS:
        outcome = Outcome.PASS
        reason = f"{len(null_arms)} pairs of identical requests differ by {nats:.2g} nats a token"
    else:
        outcome = Outcome.FAIL if p_value < ALPHA else Outcome.INCONCLUSIVE
        reason = (
            f"identical requests differ by {nats:.3f} nats a token (over tokens of top-1"
            f" probability < .9), more than the {FLOOR_NATS} of a healthy floor"
        )
    return FloorFinding(
        outcome=outcome,
        nats=nats,
        flips=flips,
        pairs=len(null_arms),
        p_value=p_value,
        reason=reason,
    )


def _p_at_most(means: Sequence[float], bound: float) -> float:
    """Return the one-sided p-value of "the mean is <= bound", by Student's t; 1 below it."""
    n = len(means)
    mean = sum(means) / n if n else 0.0
    if mean <= bound:
        return 1.0
    if n == 1:
        return 1.0  # one prompt tells nothing of how prompts vary
    variance = sum((value - mean) ** 2 for value in means) / (n - 1)
    if variance == 0.0:
        return 0.0
    return float(stdtr(n - 1, -(mean - bound) / math.sqrt(variance / n)))
