"""From gains to a finding: the sign is judged, the nats are shown.

A gain is right when it exceeds what rounding can move. A deployment that reads gains nearly
always, a weak model by little; one that does not read gains by the toss of a coin, or nothing.
"""

from __future__ import annotations

from statistics import mean, median
from typing import TYPE_CHECKING, Any

import msgspec

from fidelity.checks.given import needs_given_text
from fidelity.checks.recall import DEPTHS_FRAC
from fidelity.checks.second_stage import with_fresh
from fidelity.checks.sweeps import by_length
from fidelity.statistics.divergence import DTYPES, rounding_bound
from fidelity.verdicts.evidence import Evidence
from fidelity.words import Blame, Ladder, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.measure import Measure
    from fidelity.records import Finding, Trial
    from fidelity.verdicts.opened import OpenedClass

COIN = 0.5
"""Of a length: more gains than losses, the sign test; five of five show it."""
_ENOUGH_UNTOUCHED = 3


def bound_of(measure: Measure) -> float:
    """Return what rounding can move here, in nats; the deployment must score given text.

    Raises:
        CapabilityMissing, NotApplicable: it does not.
    """
    needs_given_text(measure)
    said = measure.settings.dtype
    if said is None and not measure.planning:
        told = str((measure.deployment.server_info or {}).get("dtype", "")).lower()
        said = told if told in DTYPES else None
    return rounding_bound(said)


def gain_findings(
    measure: Measure,
    trials: Sequence[Trial],
    opened: Sequence[OpenedClass],
    threshold: float,
    rows: Sequence[int],
) -> list[Finding]:
    """Return "the fact gains" over all, and at each length by the sign test.

    A loss of reading alone blames nobody: a weak model gains little. Where the altered fact left
    its answer untouched, and facts as far away were read, it was lost by the deployment.
    """
    untouched = _untouched(with_fresh(trials, opened))
    blame = Blame.DEPLOYMENT if untouched else None
    pooled = measure.rate_finding(
        trials,
        threshold,
        title=f"the fact gains in >= {threshold:.2f} of contexts",
        effect_name="gains",
        blame=blame,
    )
    words = _nats(trials)
    if untouched:
        words += f"; in {untouched} contexts the fact did not touch its answer at all, and facts"
        words += " as far away were read: they were lost, not read weakly"
        if pooled.outcome is Outcome.FAIL and pooled.ladder is None:
            pooled = msgspec.structs.replace(pooled, ladder=Ladder.STRUCTURAL)
    findings = [msgspec.structs.replace(pooled, reason=f"{pooled.reason}; {words}")]
    for row, found in by_length(trials, opened, rows).items():
        each = measure.rate_finding(
            found,
            COIN,
            title=f"more gains than losses at {row} tokens",
            effect_name="gains",
            blame=blame,
        )
        findings.append(msgspec.structs.replace(each, reason=f"{each.reason}; {_nats(found)}"))
    return findings


def profile_of(
    trials: Sequence[Trial], rival: Sequence[Trial], *, rows: Sequence[int]
) -> dict[str, Any]:
    """Return the gains by length and depth, in nats, and what altering a distractor does."""
    held = [trial for trial in Evidence.of(trials).measured if trial.value is not None]
    return {
        "cells": [
            cell
            for row in rows
            for depth in DEPTHS_FRAC
            if (cell := _cell(row, depth, held)) is not None
        ],
        "lengths": [_of_length(row, held) for row in rows if _values(held, row)],
        "distractor_nats": [t.value for t in Evidence.of(rival).measured if t.value is not None],
    }


def _cell(row: int, depth: float, trials: Sequence[Trial]) -> dict[str, Any] | None:
    values = [
        trial.value
        for trial in trials
        if trial.cell.get("length_tokens") == row
        and trial.cell.get("depth_frac") == depth
        and trial.value is not None
    ]
    if not values:
        return None
    return {
        "length_tokens": row,
        "depth_frac": depth,
        "n": len(values),
        "mean": mean(values),
        "least": min(values),
    }


def _of_length(row: int, trials: Sequence[Trial]) -> dict[str, Any]:
    values = _values(trials, row)
    return {
        "length_tokens": row,
        "n": len(values),
        "mean": mean(values),
        "median": median(values),
        "least": min(values),
        "gains": sum(bool(t.ok) for t in trials if t.cell.get("length_tokens") == row),
    }


def _values(trials: Sequence[Trial], row: int) -> list[float]:
    return [
        trial.value
        for trial in trials
        if trial.cell.get("length_tokens") == row and trial.value is not None
    ]


def _nats(trials: Sequence[Trial]) -> str:
    values = [t.value for t in Evidence.of(trials).measured if t.value is not None]
    if not values:
        return "no gain was measured"
    return f"gain {mean(values):+.2f} nats on average, {min(values):+.2f} at least"


def _untouched(trials: Sequence[Trial]) -> int:
    """Return how many misses were not touched by a fact nearer than others that were read.

    0 unless these are most of the misses. A model whose attention reaches less far than the text
    is long is not touched by far facts either: that is why others must be read from as far.
    """
    evidence = Evidence.of(trials)
    read = [_distance(trial) for trial in evidence.measured if trial.ok]
    found = [
        trial
        for trial in evidence.misses
        if trial.details.get("untouched") and _distance(trial) <= max(read, default=-1.0)
    ]
    enough = len(found) >= _ENOUGH_UNTOUCHED and 2 * len(found) >= len(evidence.misses)
    return len(found) if enough else 0


def _distance(trial: Trial) -> float:
    """Return about how many tokens lie between the fact and the answer."""
    return (1.0 - float(trial.cell["depth_frac"])) * float(trial.cell["prompt_tokens"])
