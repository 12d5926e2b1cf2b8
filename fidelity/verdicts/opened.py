"""The second stage: every class with a miss is asked again on its own, so no pool hides it.

One bad residue modulo 128 pools to .992. A class is opened by a miss, asked 22 fresh probes, and
held to >= .80; Holm runs over the opened classes. A class's name is "axis=value".
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fidelity.records import Trial
from fidelity.statistics.holm import holm
from fidelity.statistics.stats import ALPHA, clopper_pearson_lower, p_at_least
from fidelity.verdicts.evidence import Evidence

CLASS_THRESHOLD = 0.80
CLASS_TRIALS = 22
"""22 bear one miss; below 14 even a clean sheet cannot pass."""

CLASSES_TO_LOCALISE = 3
"""When the pool itself fails, a few classes are still asked, to tell where it fails."""

PLACES = ("residue", "boundary", "page", "chunk", "window")
"""Axes on which a model has no reason to fail at one value only."""

Classes = Callable[[Trial], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedClass:
    """A class that missed in stage 1, with its fresh trials of stage 2 (none: not asked)."""

    name: str
    threshold: float
    trials: tuple[Trial, ...]
    stage_one: tuple[Trial, ...]
    """Trials of stage 1 outside this class: what is healthy beside it."""

    @property
    def evidence(self) -> Evidence:
        """The fresh trials as evidence."""
        return Evidence.of(self.trials)

    @property
    def p_value(self) -> float:
        """Of "the class's rate is >= threshold", if unmeasured trials had been right; exact."""
        best = self.evidence.best_case
        return p_at_least(best.k_high, best.n, self.threshold) if self.evidence.measured else 1.0

    @property
    def passes(self) -> bool:
        """True when the class's own lower bound reaches the threshold."""
        rate = self.evidence.rate
        clean = rate.n > 0 and not self.evidence.unmeasured
        return clean and clopper_pearson_lower(rate.k_low, rate.n) >= self.threshold


def second_stage(
    trials: Sequence[Trial],
    classes: Classes,
    ask: Callable[[str], Sequence[Trial]],
    *,
    threshold: float,
) -> list[OpenedClass]:
    """Ask the classes that missed, in order of suspicion, and return all of them.

    It ends early only when those asked already fail the claim after Holm over all that missed;
    the others are returned unasked, so that they count in Holm's family.
    """
    names = missed_classes(trials, classes)
    most = CLASSES_TO_LOCALISE if pool_already_fails(trials, threshold) else len(names)
    found = {name: _opened(name, (), trials, classes, threshold) for name in names}
    for name in names[:most]:
        found[name] = _opened(name, ask(name), trials, classes, threshold)
        if 2 * classes_p(list(found.values())) < ALPHA:  # twice: the pool is looked at too
            break
    return list(found.values())


def _opened(
    name: str, asked: Sequence[Trial], trials: Sequence[Trial], classes: Classes, threshold: float
) -> OpenedClass:
    return OpenedClass(
        name=name,
        threshold=threshold,
        trials=tuple(asked),
        stage_one=outside(trials, classes, name),
    )


def missed_classes(trials: Sequence[Trial], classes: Classes) -> list[str]:
    """Return the classes with a miss, those that missed most (and then most purely) first."""
    misses: dict[str, int] = {}
    totals: dict[str, int] = {}
    for trial in Evidence.of(trials).measured:
        for name in dict.fromkeys(classes(trial)):
            totals[name] = totals.get(name, 0) + 1
            misses[name] = misses.get(name, 0) + (not trial.ok)
    opened = [name for name, count in misses.items() if count]
    return sorted(
        opened, key=lambda name: (-misses[name] / totals[name] * math.sqrt(misses[name]), name)
    )


def outside(trials: Sequence[Trial], classes: Classes, name: str) -> tuple[Trial, ...]:
    """Return the trials that do not belong to a class."""
    return tuple(trial for trial in trials if name not in set(classes(trial)))


def pool_already_fails(trials: Sequence[Trial], threshold: float) -> bool:
    """True when stage 1 as a whole lies below even the classes' threshold."""
    evidence = Evidence.of(trials)
    best = evidence.best_case
    return bool(evidence.measured) and p_at_least(best.k_high, best.n, threshold) < ALPHA / 2


def classes_p(opened: Sequence[OpenedClass]) -> float:
    """Return Holm's smallest adjusted p-value over all opened classes; 1 when there are none."""
    steps = holm({found.name: found.p_value for found in opened})
    return steps[0].adjusted if steps else 1.0


def names_a_place(name: str) -> bool:
    """True when the class is a place (a residue, a boundary) and not a length or a depth."""
    return name.partition("=")[0].startswith(PLACES)


def rest_is_healthy(guilty: OpenedClass | None, evidence: Evidence) -> bool:
    """True when stage 1 outside the guilty class reaches the threshold by its own lower bound."""
    if guilty is None or not evidence.measured:
        return False
    rate = Evidence.of(guilty.stage_one).rate
    return rate.n > 0 and clopper_pearson_lower(rate.k_low, rate.n) >= guilty.threshold
