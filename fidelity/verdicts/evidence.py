"""Trials read as evidence: what was measured, what could not be, and how arms pair up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fidelity.errors import ConfigError
from fidelity.records import Trial
from fidelity.statistics.paired import Pairs
from fidelity.statistics.stats import Rate, rate_of
from fidelity.words import Score

LOST_IN_RENDERING = "rendering"
"""Of `Trial.lost`: the server never rendered the turn, by its own token counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Trials of one arm, split into those that count and those that infrastructure cut off."""

    measured: tuple[Trial, ...]
    unmeasured: tuple[Trial, ...]

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> "Evidence":
        """Split trials by whether they were measured."""
        held = tuple(trials)
        return cls(
            measured=tuple(trial for trial in held if trial.ok is not None),
            unmeasured=tuple(trial for trial in held if trial.ok is None),
        )

    @property
    def misses(self) -> tuple[Trial, ...]:
        """Measured trials that are not ok."""
        return tuple(trial for trial in self.measured if not trial.ok)

    @property
    def rate(self) -> Rate:
        """Rate of ok trials, clusters counted once."""
        return rate_of((trial.cluster, bool(trial.ok)) for trial in self.measured)

    @property
    def best_case(self) -> Rate:
        """The rate if every unmeasured trial had been right: what a fail has to survive."""
        return rate_of(
            [(trial.cluster, bool(trial.ok)) for trial in self.measured]
            + [(trial.cluster, True) for trial in self.unmeasured]
        )

    @property
    def trouble(self) -> str:
        """How many trials could not be measured, and the first reason; "" when all were."""
        if not self.unmeasured:
            return ""
        total = len(self.measured) + len(self.unmeasured)
        return (
            f"{len(self.unmeasured)} of {total} trials could not be measured"
            f" (first: {_why_unmeasured(self.unmeasured[0])})"
        )

    @property
    def mostly_lost_in_rendering(self) -> bool:
        """True when at least half of the misses never reached the model."""
        misses = self.misses
        lost = sum(trial.lost == LOST_IN_RENDERING for trial in misses)
        return bool(misses) and 2 * lost >= len(misses)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEvidence:
    """The same probes in two arms; `cautious` favours no pass, `generous` favours no fail.

    A cluster is one observation: lost when any of its pairs is (cautious), or only when all of
    them are (generous). A pair that could not be measured is left out of the cautious count; in
    the generous one this arm was right, and the control arm wrong unless it was seen to be right.
    """

    cautious: Pairs
    generous: Pairs
    unmeasured: int
    across_epochs: int
    trials: tuple[Trial, ...]


def _why_unmeasured(trial: Trial) -> str:
    """Return why a trial counts neither way: its error, else what its score and answer tell."""
    if trial.error:
        return trial.error
    last = trial.exchanges[-1] if trial.exchanges else None
    if last is not None and last.error:
        return last.error
    if trial.score is Score.CUT:
        spent = "its token budget"
        if last is not None and last.completion_tokens:
            spent = f"all {last.completion_tokens} tokens of its budget"
        return (
            f"the answer spent {spent} inside its reasoning and never began (cut): ask for less"
            " reasoning in [request] of fidelity.toml"
        )
    scored = "was not scored" if trial.score is None else f"is {trial.score}"
    return f"the answer {scored} and says nothing of the claim"


def pair_up(treated: Sequence[Trial], control: Sequence[Trial]) -> PairedEvidence:
    """Match trials by their probe's key.

    A pair counts when both were measured, in one epoch.

    Raises:
        ConfigError: the two arms did not ask the same probes.
    """
    other = {trial.key: trial for trial in control}
    if {trial.key for trial in treated} != set(other):
        raise ConfigError(
            f"the arms {_arm(treated)} and {_arm(control)} asked different probes: a comparison"
            " needs the same keys in both"
        )
    measured: dict[str, list[tuple[bool, bool]]] = {}
    at_best: dict[str, list[tuple[bool, bool]]] = {}
    unmeasured = across = 0
    for trial in treated:
        twin = other[trial.key]
        name = f"cluster {trial.cluster}" if trial.cluster else f"key {trial.key}"
        if trial.ok is None or twin.ok is None:
            unmeasured += 1
            best = (trial.ok is not False, bool(twin.ok))
            at_best.setdefault(name, []).append(best)
        elif trial.epoch != twin.epoch:
            across += 1
        else:
            measured.setdefault(name, []).append((trial.ok, twin.ok))
            at_best.setdefault(name, []).append((trial.ok, twin.ok))
    return PairedEvidence(
        cautious=_count(measured, any_lost=True),
        generous=_count(at_best, any_lost=False),
        unmeasured=unmeasured,
        across_epochs=across,
        trials=(*treated, *control),
    )


def _arm(trials: Sequence[Trial]) -> str:
    return repr(trials[0].arm) if trials else "(empty)"


def _count(clusters: dict[str, list[tuple[bool, bool]]], *, any_lost: bool) -> Pairs:
    lost = gained = 0
    for pairs in clusters.values():
        worse = [control and not treated for treated, control in pairs]
        better = [treated and not control for treated, control in pairs]
        if any_lost:
            lost += any(worse)
            gained += not any(worse) and all(better)
        else:
            gained += any(better)
            lost += not any(better) and all(worse)
    return Pairs(n=len(clusters), lost=lost, gained=gained)
