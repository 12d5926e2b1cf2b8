"""A script before its words: moves of a conversation game, small enough to search and to shrink.

A move names its conversation by number and its texts by their size. `words` turns moves into a
script of literal texts; the same moves with other words are another script of the same shape.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from fidelity.words import Traffic


class Kind(StrEnum):
    """What a move does."""

    OPEN = "open"
    """A new conversation: notes with facts, and a question about one of them."""
    FOLLOW_UP = "follow up"
    """The next turn of a conversation, built on what the server really answered."""
    FORK = "fork"
    """A new conversation that begins with the first turns of another one."""
    RETRY = "retry"
    """The last turn of a conversation once more, its answer thrown away."""
    ABORT = "abort"
    """A turn that we leave before its end."""
    FLOOD = "flood"
    """A long request of a stranger, to evict what is cached."""
    FLUSH = "flush"


class Style(StrEnum):
    """How a request is asked: mixed parameters in one batch."""

    GREEDY = "greedy"
    WHOLE = "not streamed"
    WARM = "temperature 0.8"
    TOOLS = "with tools"


class Move(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One move.

    Attributes:
        kind: what it does.
        talk: number of the conversation; of a new one, the next free number.
        of: of a fork, the conversation that it begins with.
        turns: of a fork, how many of that one's turns it takes over.
        facts: that the message tells, each behind a line of filler; 0 is a bare question.
        which: the fact asked for, counted back from the newest that the conversation holds.
        style: of the request.
        after: of an abort, deltas until we leave; 0 is as soon as the server answers at all.
        by_call: of an abort: by the server's abort call, not by closing the connection.
        keep: of an abort: the conversation goes on with the partial answer.
        lines: of a flood.
        beside: styles of strangers that ask at the same time.
    """

    kind: Kind
    talk: int = 0
    of: int = 0
    turns: int = 0
    facts: int = 0
    which: int = 0
    style: Style = Style.GREEDY
    after: int = 0
    by_call: bool = False
    keep: bool = False
    lines: int = 0
    beside: tuple[Style, ...] = ()

    @property
    def requests(self) -> int:
        """Requests that the move sends."""
        return 1 + len(self.beside)

    @property
    def talks(self) -> bool:
        """True when it belongs to a conversation."""
        return self.kind not in {Kind.FLOOD, Kind.FLUSH}

    @property
    def traffic(self) -> Traffic:
        """The highest traffic class of what it sends."""
        if self.kind in {Kind.FLOOD, Kind.FLUSH} or self.by_call:
            return Traffic.DISRUPTIVE
        return Traffic.LOAD if len(self.beside) > PASSIVE_STRANGERS else Traffic.PASSIVE


PASSIVE_STRANGERS = 2
"""Requests beside one's own that are no load yet: what any two users send."""

Moves = tuple[Move, ...]

FACTS = (2, 4, 7, 12)
"""Told by a message, each behind a line of filler: 120, 230, 400 and 650 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the deployment allows, and the sizes of a game.

    Attributes:
        allow: traffic classes.
        call: the server has an abort call.
        flush: the server has a flush.
        tools: the server knows tools.
        flood_lines: lengths of a flood, in lines of about 26 tokens; none without disruption.
        strangers: most that ask beside one's own request.
        most_requests: of one game.
    """

    allow: frozenset[Traffic]
    call: bool = False
    flush: bool = False
    tools: bool = False
    flood_lines: tuple[int, ...] = ()
    strangers: int = PASSIVE_STRANGERS
    most_requests: int = 10

    @property
    def disruptive(self) -> bool:
        """True when the server may be flushed, flooded, and told to abort."""
        return Traffic.DISRUPTIVE in self.allow


def requests_of(moves: Moves) -> int:
    """Return how many requests these moves send."""
    return sum(move.requests for move in moves)


def traffic_of(moves: Moves) -> Traffic:
    """Return the highest traffic class of these moves."""
    order = list(Traffic)
    return max((move.traffic for move in moves), key=order.index, default=Traffic.PASSIVE)


def digest(moves: Moves) -> str:
    """Return a short name of these moves, the same in each run."""
    return hashlib.blake2s(msgspec.json.encode(moves), digest_size=4).hexdigest()


def sound(moves: Moves) -> Moves:
    """Return the moves with whatever a missing one left dangling mended or dropped.

    A turn of a conversation that never began begins it, a fork of one too; a fork takes over no
    more turns than there are; a retry without a question is dropped; numbers follow the beginnings.
    """
    turns: dict[int, int] = {}
    names: dict[int, int] = {}
    answered: set[int] = set()
    """Conversations whose last turn is a question, not an abort that was kept."""
    kept = []
    for move in moves:
        mended = _mended(move, turns, answered) if move.talks else move
        if mended is None:
            continue
        if mended.talks:
            names.setdefault(mended.talk, len(names))
            turns.setdefault(mended.talk, mended.turns)
            grows = mended.kind in {Kind.OPEN, Kind.FOLLOW_UP, Kind.FORK} or mended.keep
            turns[mended.talk] += grows
            if grows:
                (answered.discard if mended.keep else answered.add)(mended.talk)
            of = names[mended.of] if mended.kind is Kind.FORK else 0
            mended = msgspec.structs.replace(mended, talk=names[mended.talk], of=of)
        kept.append(mended)
    return tuple(kept)


def _mended(move: Move, turns: Mapping[int, int], answered: Collection[int]) -> Move | None:
    replace = msgspec.structs.replace
    match move.kind:
        case Kind.RETRY:
            return move if move.talk in answered else None
        case Kind.FOLLOW_UP if move.talk not in turns:
            return replace(move, kind=Kind.OPEN, facts=max(1, move.facts))
        case Kind.OPEN if move.talk in turns:
            return replace(move, kind=Kind.FOLLOW_UP)
        case Kind.FORK:
            taken = min(move.turns, turns.get(move.of, 0))
            if not taken:
                return replace(move, kind=Kind.OPEN, of=0, turns=0, facts=max(1, move.facts))
            return replace(move, turns=taken)
    return move
