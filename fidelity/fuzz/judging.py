"""From the trials of scripts to findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fidelity.fuzz.trying import RUNG, null_of
from fidelity.words import Ladder, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.measure import Measure
    from fidelity.records import Finding, Trial


def finding_of(measure: Measure, trials: Sequence[Trial], *, reason: str, what: str) -> Finding:
    """Decide that every answer of every script is what it is alone.

    Args:
        measure: the claim.
        trials: of scripts.
        reason: of a failure, in place of the usual sentence.
        what: was played, for the title.
    """
    found = measure.all_true_finding(
        trials,
        title=f"every answer is what the same messages get alone, in {what}",
        ladder=worst_rung(trials),
    )
    if found.outcome is not Outcome.FAIL:
        return found
    return msgspec.structs.replace(found, reason=reason)


def doubted(finding: Finding) -> Finding:
    """Return a failure that may be a slip as what it is: inconclusive."""
    if finding.outcome is not Outcome.FAIL:
        return finding
    return msgspec.structs.replace(
        finding,
        outcome=Outcome.INCONCLUSIVE,
        reason=f"{finding.reason}; other words did not bear it out: a slip of the model, a"
        " wild step of rounding, or a fault that comes and goes",
        ladder=None,
        blame=None,
        p_value=None,
        provisional=False,
    )


def cut_short(finding: Finding, played: int, planned: int) -> Finding:
    """Return a pass on fewer games than were planned as what it is: inconclusive."""
    if finding.outcome is not Outcome.PASS:
        return finding
    return msgspec.structs.replace(
        finding,
        outcome=Outcome.INCONCLUSIVE,
        reason=f"time ran out after {played} of {planned} games, none of which failed",
    )


def null_finding_of(measure: Measure, trials: Sequence[Trial]) -> Finding:
    """Decide that isolated requests, asked twice, agree with themselves."""
    nulls = null_of(trials)
    found = measure.all_true_finding(
        nulls, title="one request asked twice alone gets one answer", ladder=Ladder.DRIFT
    )
    if found.outcome is not Outcome.FAIL:
        return found
    missed = sum(trial.ok is False for trial in nulls)
    return msgspec.structs.replace(
        found,
        reason=f"{missed} of {len(nulls)} isolated requests, asked again in the same way, differ by"
        " more than rounding: what does not agree with itself can be compared with nothing",
    )


def worst_rung(trials: Sequence[Trial]) -> Ladder | None:
    """Return the worst rung that a failed script was found on."""
    rungs = [Ladder(str(t.cell[RUNG])) for t in trials if t.ok is False and RUNG in t.cell]
    return max(rungs, key=list(Ladder).index, default=None)
