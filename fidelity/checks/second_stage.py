"""What surrounds a decision: the second stage joined to the first, and what a control arm shows."""

from collections.abc import Sequence

from fidelity.records import Trial
from fidelity.statistics.stats import clopper_pearson_lower
from fidelity.verdicts.evidence import Evidence
from fidelity.verdicts.opened import OpenedClass
from fidelity.words import Blame

ABLE = 0.80
"""Recall of a control arm above which the model itself is not to blame."""


def with_fresh(trials: Sequence[Trial], opened: Sequence[OpenedClass]) -> list[Trial]:
    """Return the trials of both stages: a class is open to all that was asked of it."""
    return [*trials, *(trial for found in opened for trial in found.trials)]


def blame_beside(control: Sequence[Trial]) -> Blame | None:
    """Return whom a failure is to be blamed on when this is its control arm.

    A model that does the same under calm conditions can do it: then it is the deployment.
    """
    rate = Evidence.of(control).rate
    able = rate.n > 0 and clopper_pearson_lower(rate.k_low, rate.n) >= ABLE
    return Blame.DEPLOYMENT if able else None


def missed(trials: Sequence[Trial]) -> bool:
    """Return True when a trial of these is wrong."""
    return bool(Evidence.of(trials).misses)
