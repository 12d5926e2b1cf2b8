"""Is there a difference that all texts share? Rounding goes up as often as down."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy.special import stdtr, stdtrit

from fidelity.records import Finding
from fidelity.statistics.divergence import rounding_bound
from fidelity.statistics.stats import ALPHA
from fidelity.verdicts.evidence import Evidence
from fidelity.words import Blame, Ladder, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.measure import Measure
    from fidelity.records import Trial

FLOOR_SHARE = 0.2
"""Of the rounding bound, as a mean: .05 nats in bfloat16, as much as a server may differ from
itself. Two implementations round differently even where each repeats itself to the bit."""


def bias_finding(measure: Measure, trials: Sequence[Trial], *, dtype: str) -> Finding:
    """Decide that the signed differences of open tokens are on average nearly zero.

    No token has to move beyond rounding for all of them to be a little too low. Texts are the
    clusters: one mean each, Student's t over them, on both sides of zero.
    """
    evidence = Evidence.of(trials)
    means = [float(v) for t in evidence.measured if (v := t.details.get("bias")) is not None]
    limit = FLOOR_SHARE * rounding_bound(dtype)
    mean = sum(means) / len(means) if means else 0.0
    error = _standard_error(means)
    p_value = _p_at_most(abs(mean), limit, error, len(means))
    if p_value < ALPHA:
        outcome = Outcome.FAIL
    elif evidence.trouble:
        outcome = Outcome.ERROR
    else:
        outcome = Outcome.PASS if _shown_below(means, limit, error) else Outcome.INCONCLUSIVE
    fails = outcome is Outcome.FAIL
    words = f"open tokens differ by {mean:+.2g} nats on average, with their signs; {limit:.2g} may"
    return Finding(
        claim=measure.claim,
        suite=measure.suite,
        title="differences of logprobs go up as often as down",
        outcome=outcome,
        reason=evidence.trouble if outcome is Outcome.ERROR else words,
        ladder=Ladder.DRIFT if fails else None,
        blame=Blame.DEPLOYMENT if fails else None,
        effect_name="mean signed logprob difference of open tokens, nats",
        effect=mean,
        n=len(means),
        p_value=p_value,
        trials=tuple(trial.id for trial in trials),
        provisional=fails,
        minimum_detectable_effect=(
            f"a shift of all texts by {limit + _margin(means, error):.2g} nats"
        ),
    )


def _standard_error(means: Sequence[float]) -> float:
    n = len(means)
    if n < 2:
        return math.inf
    mean = sum(means) / n
    return math.sqrt(sum((value - mean) ** 2 for value in means) / (n - 1) / n)


def _p_at_most(size: float, limit: float, error: float, n: int) -> float:
    """Return the two-sided p-value of "the mean's size is <= limit"; one text shows nothing."""
    if size <= limit or math.isinf(error):
        return 1.0
    if error == 0.0:
        return 0.0
    return min(1.0, 2.0 * float(stdtr(n - 1, -(size - limit) / error)))


def _margin(means: Sequence[float], error: float) -> float:
    """Return half the width of the interval with 95 % on either side."""
    if len(means) < 2:
        return 0.0
    return float(stdtrit(len(means) - 1, 1.0 - ALPHA)) * error


def _shown_below(means: Sequence[float], limit: float, error: float) -> bool:
    """True when the interval lies within the limit; without an open token nothing differs."""
    if not means:
        return True
    if len(means) < 2:
        return abs(means[0]) <= limit
    return abs(sum(means) / len(means)) + _margin(means, error) <= limit
