"""From what the arms of one prompt were answered to whether they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.errors import EndpointError
from fidelity.probes.probe import ProbeResult
from fidelity.twins.answers import Heard, Names, tokens_of
from fidelity.twins.comparison import Parting, details_of, part, part_texts, rung_of

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply
    from fidelity.twins.room import Room
    from fidelity.twins.twin import Arms

UNPROVEN = "path not taken: "


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
        return ProbeResult(
            ok=twin.agrees or twin.first != arms.seen_at,
            value=twin.nats,
            cell={**cell, "must part at": arms.seen_at, "parts at": _at(twin)},
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


def _parted(arms: Arms, pair: tuple[Heard, Heard], names: Names, room: Room) -> Parting:
    one, other = (tokens_of(heard, names) for heard in pair)
    lost = arms.texts and one == other and _shape(pair[0]) != _shape(pair[1])
    try:
        return part(one, other, dtype=room.dtype, lost=lost, sampled=arms.sampled)
    except ValueError as error:
        raise EndpointError(f"the arms cannot be compared: {error}") from error


def _badness(parting: Parting) -> tuple[bool, bool, float]:
    return (parting.lost, not parting.agrees, parting.nats)


def _units(reply: Reply) -> tuple[Any, ...]:
    return reply.token_ids if reply.token_ids is not None else tuple(reply.text)


def _shape(heard: Heard) -> tuple[Any, ...]:
    reply = heard.reply
    return (reply.text, reply.reasoning, reply.finish_reason, reply.completion_tokens)


def _at(parting: Parting) -> int:
    return parting.at if parting.first is None else parting.first
