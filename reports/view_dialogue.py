"""One trial as a chat."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fidelity.records import Exchange, Trial
from reports.view_axes import cell_text
from reports.view_text import cut, duration, plural

MAX_TURNS = 14
"""Of one request; of a longer conversation both ends are shown."""
CHARACTERS = 700
"""Of one bubble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One bubble; `pieces` are (text, marked) and `side` is where it hangs."""

    role: str
    side: str
    pieces: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request and its answer."""

    title: str
    facts: tuple[str, ...]
    turns: tuple[Turn, ...]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One trial as a chat."""

    trial: str
    cell: str
    score: str
    ok: bool | None
    seed: int
    requests: tuple[Request, ...]
    error: str


def conversation_of(trial: Trial) -> Conversation:
    """Return one trial as a chat, every text cut to its ends."""
    before: Sequence[Mapping[str, Any]] = ()
    requests = []
    for place, exchange in enumerate(trial.exchanges, start=1):
        last = place == len(trial.exchanges)
        requests.append(_request(trial, exchange, place, before, last=last))
        before = exchange.messages
    return Conversation(
        trial=trial.id,
        cell=cell_text(trial),
        score=str(trial.score or ("right" if trial.ok else "not scored")),
        ok=trial.ok,
        seed=trial.seed,
        requests=tuple(requests),
        error=trial.error,
    )


def _request(
    trial: Trial,
    exchange: Exchange,
    place: int,
    before: Sequence[Mapping[str, Any]],
    *,
    last: bool,
) -> Request:
    shared = 0
    while shared < min(len(before), len(exchange.messages)) and (
        before[shared] == exchange.messages[shared]
    ):
        shared += 1
    turns = []
    if shared:
        turns.append(_note(f"{plural(shared, 'message')} as in the request before"))
    turns += _asked(exchange.messages[shared:], trial.expected)
    turns += _answered(trial, exchange, last=last)
    label = exchange.label or exchange.path or "request"
    return Request(
        title=label if len(trial.exchanges) == 1 else f"{place}. {label}",
        facts=_facts(exchange),
        turns=tuple(turns),
        error=exchange.error,
    )


def _note(text: str) -> Turn:
    return Turn(role="", side="note", pieces=((text, False),))


def _asked(messages: Sequence[Mapping[str, Any]], expected: str) -> list[Turn]:
    turns = [_turn(message, expected) for message in messages]
    if len(turns) <= MAX_TURNS:
        return turns
    hidden = len(turns) - MAX_TURNS + 1
    return [*turns[:5], _note(f"{hidden} messages not shown"), *turns[5 + hidden :]]


def _turn(message: Mapping[str, Any], expected: str) -> Turn:
    role = str(message.get("role", "message"))[:40]
    parts = [
        _as_text(message[name])
        for name in ("reasoning_content", "content", "tool_calls")
        if message.get(name)
    ]
    side = {"user": "asked", "assistant": "said"}.get(role, "given")
    return Turn(role=role, side=side, pieces=_marked("\n".join(parts) or "(empty)", expected))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _answered(trial: Trial, exchange: Exchange, *, last: bool) -> list[Turn]:
    if exchange.error:
        return []
    turns = []
    if exchange.reasoning:
        pieces = _marked(exchange.reasoning, trial.expected)
        turns.append(Turn(role="reasoning", side="thought", pieces=pieces))
    for call in exchange.tool_calls:
        text = f"{call.name}({call.arguments})"
        pieces = _marked(text, trial.expected)
        turns.append(Turn(role="tool call", side="thought", pieces=pieces))
    if exchange.text or not turns:
        side = "answer" if not last or trial.ok is None else "right" if trial.ok else "wrong"
        pieces = _marked(exchange.text or "(empty answer)", trial.expected)
        turns.append(Turn(role="answer", side=side, pieces=pieces))
    return turns


def _marked(text: str, expected: str) -> tuple[tuple[str, bool], ...]:
    """Return the text cut to its ends, in pieces, those that are the right answer marked."""
    shown = cut(text, CHARACTERS)
    if len(expected) < 2 or len(expected) > 200 or expected not in shown:
        return ((shown, False),)
    pieces: list[tuple[str, bool]] = []
    for place, piece in enumerate(shown.split(expected, 20)):
        if place:
            pieces.append((expected, True))
        if piece:
            pieces.append((piece, False))
    return tuple(pieces)


def _facts(exchange: Exchange) -> tuple[str, ...]:
    timings = (("first token", exchange.ttft_s), ("all", exchange.e2e_s))
    facts = [
        *_token_facts(exchange),
        f"finish: {exchange.finish_reason}" if exchange.finish_reason else "",
        "aborted by the client" if exchange.aborted else "",
        *(f"{name} {duration(seconds)}" for name, seconds in timings if seconds is not None),
        f"HTTP {exchange.status}" if exchange.status not in {0, 200} else "",
        f"replica {exchange.replica[:60]}" if exchange.replica else "",
        f"id {exchange.request_id[:60]}" if exchange.request_id else "",
    ]
    return tuple(fact for fact in facts if fact)


def _token_facts(exchange: Exchange) -> list[str]:
    facts = []
    if exchange.prompt_tokens is not None:
        cached = exchange.cached_tokens
        known = "cached not reported" if cached is None else f"{cached:,} cached"
        facts.append(f"{exchange.prompt_tokens:,} prompt ({known})")
    if exchange.completion_tokens is not None:
        facts.append(f"{exchange.completion_tokens:,} generated")
    if exchange.reasoning_tokens:
        facts.append(f"{exchange.reasoning_tokens:,} reasoning")
    return facts
