"""From what the arms of one prompt were answered to whether they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.errors import EndpointError
from fidelity.probes.probe import ProbeResult
from fidelity.twins.answers import Heard, Names, tokens_of
from fidelity.twins.comparison import Parting, details_of, part, part_texts, rung_of
from fidelity.twins.twin import Arms

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply
    from fidelity.twins.room import Room

UNPROVEN = "path not taken: "
TEXT = "text"
"""What differs where an answer's own words do; all else is the shape in which they are told."""


def judged(arms: Arms, room: Room) -> ProbeResult:
    """Return what came of one prompt: whether its arms agree, and where they part.

    Raises:
        EndpointError: logprobs are missing.
    """
    twin, null = _compared(arms, room)
    cell: dict[str, Any] = {
        **arms.cell,
        "nats": float(f"{twin.nats:.3g}"),
        "null_nats": float(f"{null.nats:.3g}"),
    }
    if arms.seen_at is not None:
        place = "must part at" if arms.seen_at else "must part from"
        return ProbeResult(
            ok=not _seen(twin, arms.seen_at),
            value=twin.nats,
            cell={**cell, place: arms.seen_at, "parts at": _at(twin)},
            details=details_of(twin, null),
        )
    agrees = twin.agrees and null.agrees
    if arms.doubt and agrees:  # arms that part tell enough, whichever path they took
        return ProbeResult(ok=None, error=f"{UNPROVEN}{arms.doubt}", cell=cell)
    rung = rung_of(twin, null)
    details = details_of(twin, null) | {"rung": "" if rung is None else str(rung)}
    if not agrees:
        who = "the arms" if not twin.agrees else "two identical requests"
        where = twin if not twin.agrees else null
        details["parts"] = f"{who} part: {where.words}"
        if shape := _shape_alone(twin, null):
            details["shape"] = shape
        cell["parts at"] = _at(where)
    return ProbeResult(ok=agrees, value=twin.nats, cell=cell, paths=arms.paths, details=details)


def _compared(arms: Arms, room: Room) -> tuple[Parting, Parting]:
    """Return the pair of arms that parts most, and the null arm."""
    pairs = ((arms.one, arms.other), *arms.more)
    if not room.graded:
        found = [part_texts(_units(one.reply), _units(other.reply)) for one, other in pairs]
        return max(found, key=_badness), part_texts(*(_units(heard.reply) for heard in arms.null))
    names = Names()
    names.learn(heard.reply for pair in (*pairs, arms.null) for heard in pair)
    found = [_parted(arms, pair, names, room) for pair in pairs]
    return max(found, key=_badness), _parted(arms, arms.null, names, room)


def _shape_alone(*partings: Parting) -> str:
    """Return what differs where all that part have the very same tokens and logprobs, else ""."""
    shapes = [found.shape for found in partings if not found.agrees]
    return TEXT if TEXT in shapes and all(shapes) else shapes[0] if all(shapes) else ""


def _parted(arms: Arms, pair: tuple[Heard, Heard], names: Names, room: Room) -> Parting:
    one, other = (tokens_of(heard, names) for heard in pair)
    shape = _other_shape(*pair) if arms.texts and one == other else ""
    try:
        return part(one, other, dtype=room.dtype, shape=shape, sampled=arms.sampled)
    except ValueError as error:
        raise EndpointError(f"the arms cannot be compared: {error}") from error


def parting_of(one: Heard, other: Heard, room: Room) -> Parting:
    """Return where two answers part.

    Raises:
        EndpointError: logprobs are missing.
    """
    return _compared(Arms(one=one, other=other, null=(one, one)), room)[0]


def _seen(twin: Parting, seen_at: int) -> bool:
    """Return whether a control's altered token shows where it must.

    A token altered in the answer shows at its own place. One altered in the prompt shows wherever
    the answer depends on it: a model may begin each answer with the same words.
    """
    if twin.agrees or twin.first is None:
        return False
    return seen_at in (0, twin.first)


def _badness(parting: Parting) -> tuple[bool, bool, float]:
    return (parting.lost, not parting.agrees, parting.nats)


def _units(reply: Reply) -> tuple[Any, ...]:
    if reply.token_ids is not None:
        return reply.token_ids
    return tuple(f"{reply.reasoning or ''}{reply.text}")


def _other_shape(one: Heard, other: Heard) -> str:
    """Return what differs in two answers of the same tokens, the most serious first; "" if none.

    Usage that one of them lacks is no difference: many servers tell none in a stream.
    """
    a, b = one.reply, other.reply
    if _said(a) != _said(b):
        return TEXT
    if (a.text, a.reasoning) != (b.text, b.reasoning):
        return "spaces, or where the reasoning ends"
    if a.finish_reason != b.finish_reason:
        return "finish reason"
    counts = (a.completion_tokens, b.completion_tokens)
    return "usage" if None not in counts and counts[0] != counts[1] else ""


def _said(reply: Reply) -> str:
    """Return all that was said, without spaces: parsers of reasoning strip them as they like."""
    return "".join(f"{reply.reasoning or ''}{reply.text}".split())


def _at(parting: Parting) -> int:
    return parting.at if parting.first is None else parting.first
