"""Smaller games than a given one, the greatest steps first."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fidelity.fuzz.moves import FACTS, Kind, Move, Moves, Style, sound


def smaller(moves: Moves) -> Iterator[Moves]:
    """Yield games that lack one move, or in which one move is simpler; each sound and different."""
    seen = {moves}
    for candidate in _candidates(moves):
        mended = sound(candidate)
        if mended and mended not in seen:
            seen.add(mended)
            yield mended


def _candidates(moves: Moves) -> Iterator[Moves]:
    """Yield, as delta debugging does, games without a half, a quarter ... one of their moves."""
    size = len(moves) // 2
    while size:
        for end in range(len(moves), 0, -size):
            yield moves[: max(0, end - size)] + moves[end:]
        size //= 2
    for place, move in enumerate(moves):
        for simpler in _simpler(move):
            yield (*moves[:place], simpler, *moves[place + 1 :])


def _simpler(move: Move) -> Iterator[Move]:
    replace = msgspec.structs.replace
    if move.beside:
        yield replace(move, beside=())
        yield replace(move, beside=move.beside[1:])
    if move.style is not Style.GREEDY:
        yield replace(move, style=Style.GREEDY)
    if move.by_call:
        yield replace(move, by_call=False)
    if move.kind is Kind.ABORT and move.after != 1:
        yield replace(move, after=1)  # the prompt is read by then: no race with the server
    if move.keep:
        yield replace(move, keep=False)
    if move.kind is Kind.FORK:
        yield replace(move, kind=Kind.FOLLOW_UP, talk=move.of, of=0, turns=0)
    for facts in (0, *FACTS):
        if facts < move.facts:
            yield replace(move, facts=facts)
