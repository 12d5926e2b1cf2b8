"""The second stage joined to the first: what a claim that was opened is decided on."""

from collections.abc import Sequence

from fidelity.opened import OpenedClass
from fidelity.records import Trial


def with_fresh(trials: Sequence[Trial], opened: Sequence[OpenedClass]) -> list[Trial]:
    """Return the trials of both stages: a class is open to all that was asked of it."""
    return [*trials, *(trial for found in opened for trial in found.trials)]
