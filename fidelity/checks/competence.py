"""What the model itself can do: kinds of needle that it misses where hardly anything can get lost.

A weak healthy model takes the code of a near neighbour even when the right line stands last in a
short prompt. Asked over long contexts such a needle would say nothing about the deployment, so it
is not asked there. A server that breaks this kind at every length looks the same: so the claim is
inconclusive on this kind, and no pass stands for what nobody could measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fidelity.checks.recall import needle_probe
from fidelity.probes.needles import NeedleKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.measure import Measure
    from fidelity.probes.probe import Probe
    from fidelity.records import Finding, Trial

TRIALS = 10
MOST_MISSES = 1
"""Of `TRIALS`: a model that is right in .99 of them passes in 99.6 % of the runs."""
TOKENS = 256
"""The shortest prompt that holds every kind."""


def kinds_within_reach(
    measure: Measure, kinds: Sequence[NeedleKind]
) -> tuple[list[NeedleKind], list[Finding]]:
    """Return the kinds that are answered with the fact at the end of a short prompt.

    A single needle is always asked: there is nothing easier. With the kinds comes an undecided
    part of the claim for each that was left away.

    Raises:
        EndpointError, TrafficRefused: as `Measure.ask`.
    """
    hard = [kind for kind in dict.fromkeys(kinds) if kind is not NeedleKind.SINGLE]
    trials = measure.ask(
        [_probe(measure.seed, kind, index) for kind in hard for index in range(TRIALS)],
        arm="what the model can do",
    )
    beyond: dict[NeedleKind, Finding] = {}
    for place, kind in enumerate(hard):
        asked = trials[place * TRIALS : (place + 1) * TRIALS]
        missed = misses(asked)
        if missed > MOST_MISSES:
            beyond[kind] = measure.undecided_finding(
                asked,
                title=f"{kind} needles are found",
                reason=f"{TRIALS - missed} of {TRIALS} right with the fact at the end of"
                f" {TOKENS} tokens, so longer ones were not asked: beyond the model, or broken at"
                " every length; another server with this model tells",
            )
    return [kind for kind in kinds if kind not in beyond], list(beyond.values())


def misses(trials: Sequence[Trial]) -> int:
    """Return how many of these are wrong; one that could not be measured is not."""
    return sum(trial.ok is False for trial in trials)


def _probe(seed: int, kind: NeedleKind, index: int) -> Probe:
    return needle_probe(
        seed=f"{seed}-competence-{index}",
        row_tokens=TOKENS,
        prompt_tokens=TOKENS,
        depth_frac=1.0,
        kind=kind,
    )
