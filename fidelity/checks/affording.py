"""How much of a sweep over lengths a server can be asked within the budget: the rest is named.

A budget is a token cap, derived from the measured speed. On a slow server the longest lengths are
left away, never trials of a length: fewer could not bear a claim. What was left away is said in
the finding, and stays blank in the coverage map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fidelity.runs.reopening import SHARE
from fidelity.verdicts.opened import CLASS_TRIALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.measure import Measure

_NEIGHBOURS_SHARE = 0.25
_CAP = "the budget's token cap at this server's speed ends there"
LEAST_CONTEXT_TOKENS = 1_024
"""Half of it holds the shortest probes of every suite."""
LONG_CONTEXT_TOKENS = 131_072
"""Beyond this no suite builds a prompt where a server tells no limit."""
FEWEST_NEIGHBOURS = 16
"""Each residue of 16 once, of 4 four times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Afforded:
    """What of a sweep is asked.

    Attributes:
        rows: lengths that are asked, in tokens, ascending.
        neighbours: how many neighbouring lengths.
        note: what was left away and why; "" when nothing was.
    """

    rows: list[int]
    neighbours: int
    note: str = ""


def room_of(measure: Measure) -> int | None:
    """Return what the lengths of one sweep may cost, in tokens; None when nothing bounds it."""
    return measure.sweep_room()


def context_within(measure: Measure, trials: int) -> int | None:
    """Return the context that prompts of a claim must stay within; half of it is theirs.

    The deployment's own limit, or what the budget affords of that many trials at this server's
    speed, whichever is smaller; where it is the second, the finding says so.
    """
    limit = measure.deployment.capabilities.max_model_len
    room = room_of(measure)
    if room is None:
        return limit
    within = max(LEAST_CONTEXT_TOKENS, room // trials)
    if within >= (limit or LONG_CONTEXT_TOKENS):
        return limit
    measure.note(f"prompts of at most {within // 2:,} tokens: {_CAP}")
    return within


def afforded(
    rows: Sequence[int],
    *,
    each: int,
    neighbours: int = 0,
    neighbour_tokens: int = 0,
    beside_tokens: int = 0,
    room_tokens: int | None,
) -> Afforded:
    """Return the shortest rows that fit together; the first is always asked.

    A length must also fit once more by itself: after a miss it is asked again as a class.

    Args:
        rows: lengths of the sweep, ascending.
        each: trials of each length.
        neighbours: neighbouring lengths, halved down to `FEWEST_NEIGHBOURS` where they cost too
            much.
        neighbour_tokens: of one of them.
        beside_tokens: what is asked beside in any case.
        room_tokens: what all may cost; None for no bound.
    """
    if room_tokens is None:
        return Afforded(rows=list(rows), neighbours=neighbours)
    near = neighbours
    while (
        near // 2 >= FEWEST_NEIGHBOURS and near * neighbour_tokens > _NEIGHBOURS_SHARE * room_tokens
    ):
        near //= 2
    left = room_tokens - beside_tokens - near * neighbour_tokens
    kept: list[int] = []
    for row in rows:
        left -= each * row
        if kept and (left < 0 or CLASS_TRIALS * row > SHARE * room_tokens):
            break
        kept.append(row)
    return Afforded(rows=kept, neighbours=near, note=_note(rows, kept, neighbours, near))


def _note(rows: Sequence[int], kept: Sequence[int], neighbours: int, near: int) -> str:
    parts = []
    if len(kept) < len(rows):
        lengths = ", ".join(f"{row:,}" for row in rows[len(kept) :])
        parts.append(f"lengths of {lengths} tokens were not asked")
    if near < neighbours:
        parts.append(f"{near} of {neighbours} neighbouring lengths were asked")
    if not parts:
        return ""
    return f"{' and '.join(parts)}: {_CAP}"
