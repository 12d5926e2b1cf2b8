"""The one function that says how bad a difference is.

exact < rounding < drift < selection < structural.
"""

from dataclasses import dataclass

from fidelity.words import Ladder

_ORDER = tuple(Ladder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is known of a difference between two arms, or between an arm and the truth.

    Attributes:
        equal: every compared number is the same to the bit.
        size: of the difference, in the unit of `null_floor`; None when no numbers were compared.
        null_floor: the same size between two identical requests of the same run; None: no control.
        selection_changed: a selected set (index top-k, experts) or an argmax differs outside ties.
        lost: tokens, turns or positions are missing or moved.
        foreign: text or state of another conversation showed up.
    """

    equal: bool = False
    size: float | None = None
    null_floor: float | None = None
    selection_changed: bool = False
    lost: bool = False
    foreign: bool = False


def rung(difference: Difference) -> Ladder | None:
    """Return the worst rung that the evidence proves; None when it proves none.

    A size without a null floor proves no rung: without the null arm nobody knows what rounding
    does here.
    """
    if difference.lost or difference.foreign:
        return Ladder.STRUCTURAL
    if difference.selection_changed:
        return Ladder.SELECTION
    if difference.equal:
        return Ladder.EXACT
    if difference.size is None or difference.null_floor is None:
        return None
    return Ladder.ROUNDING if difference.size <= difference.null_floor else Ladder.DRIFT


def worst(rungs: list[Ladder]) -> Ladder | None:
    """Return the worst of several rungs, None of none."""
    return max(rungs, key=_ORDER.index, default=None)
