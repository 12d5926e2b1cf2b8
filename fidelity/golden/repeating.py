"""Does each of the two deployments repeat itself? Its noise is the floor of every comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fidelity.records import Finding
from fidelity.statistics.divergence import Flip
from fidelity.twins.floor import judge_floor
from fidelity.verdicts.evidence import Evidence
from fidelity.words import Blame, Ladder, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.measure import Measure
    from fidelity.records import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class _Null:
    """One text that one deployment scored twice."""

    mean_abs_uncertain: float | None
    flips: tuple[Flip, ...]


def floor_findings(measure: Measure, trials: Sequence[Trial]) -> list[Finding]:
    """Return whether the measured deployment repeats itself, and whether the golden does.

    Noise of the golden is nobody's fault here: it makes the comparison inconclusive.
    """
    return [_finding(measure, trials, who) for who in ("measured", "golden")]


def _finding(measure: Measure, trials: Sequence[Trial], who: str) -> Finding:
    evidence = Evidence.of(trials)
    nulls = [
        _Null(
            mean_abs_uncertain=trial.details[who]["mean_abs_uncertain"],
            flips=(Flip(0, 0.0),) * int(trial.details[who]["flips"]),
        )
        for trial in evidence.measured
    ]
    floor = judge_floor(nulls)
    outcome, fails = floor.outcome, floor.outcome is Outcome.FAIL
    if fails and who == "golden":
        outcome, fails = Outcome.INCONCLUSIVE, False
    if evidence.trouble and not fails:
        outcome = Outcome.ERROR
    return Finding(
        claim=measure.claim,
        suite=measure.suite,
        title=f"the {who} deployment repeats itself",
        outcome=outcome,
        reason=evidence.trouble if outcome is Outcome.ERROR else floor.reason,
        ladder=Ladder.DRIFT if fails else None,
        blame=Blame.DEPLOYMENT if fails else None,
        effect_name="mean abs logprob difference of identical requests, nats",
        effect=floor.nats,
        n=floor.pairs,
        p_value=floor.p_value,
        trials=tuple(trial.id for trial in trials),
        provisional=fails,
        minimum_detectable_effect=f"{floor.pairs} texts, each scored twice by each deployment",
    )
