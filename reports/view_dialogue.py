"""One trial as a chat."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fidelity.records import Exchange, Trial
from reports.view_axes import cell_text
from reports.view_text import cut, cut_around, duration, plural

MAX_REQUESTS = 8
MAX_TURNS = 14
"""Of one request; of a longer conversation both ends are shown."""
CHARACTERS = 700
"""Of one bubble."""
CHARACTERS_IN_ALL = 9_000
"""Of one conversation: many turns get shorter bubbles, so that a page keeps its size."""


class _Said(NamedTuple):
    """One turn before its text is cut."""

    role: str
    side: str
    text: str


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
    hidden: str
    error: str


def conversation_of(trial: Trial) -> Conversation:
    """Return one trial as a chat, every text cut to its ends."""
    numbered = list(enumerate(trial.exchanges, start=1))
    hidden = max(0, len(numbered) - MAX_REQUESTS)
    shown = [*numbered[:2], *numbered[2 + hidden :]]
    said = [_said(trial, place) for place, _ in shown]
    limit = max(120, min(CHARACTERS, CHARACTERS_IN_ALL // max(1, sum(map(len, said)))))
    return Conversation(
        trial=trial.id,
        cell=cell_text(trial),
        score=str(trial.score or ("right" if trial.ok else "not scored")),
        ok=trial.ok,
        seed=trial.seed,
        requests=tuple(
            Request(
                title=_title(trial, place, exchange),
                facts=_facts(exchange),
                turns=tuple(_turn(one, trial.expected, limit) for one in turns),
                error=cut(exchange.error, 500),
            )
            for (place, exchange), turns in zip(shown, said, strict=True)
        ),
        hidden=f"{plural(hidden, 'request')} between them not shown" if hidden else "",
        error=cut(trial.error, 500),
    )


def _title(trial: Trial, place: int, exchange: Exchange) -> str:
    label = cut(exchange.label or exchange.path or "request", 120)
    return label if len(trial.exchanges) == 1 else f"{place}. {label}"


def _said(trial: Trial, place: int) -> list[_Said]:
    """Return the turns of one exchange, without those that the exchange before it shows."""
    exchange = trial.exchanges[place - 1]
    before = _so_far(trial.exchanges[place - 2]) if place > 1 else []
    shared = 0
    while shared < min(len(before), len(exchange.messages)) and _same(
        before[shared], exchange.messages[shared]
    ):
        shared += 1
    note = [_note(f"{plural(shared, 'message')} as in the request before")] if shared else []
    last = place == len(trial.exchanges)
    return [*note, *_asked(exchange.messages[shared:]), *_answered(trial, exchange, last=last)]


def _so_far(exchange: Exchange) -> list[Mapping[str, Any]]:
    return [*exchange.messages, {"role": "assistant", "content": exchange.text}]


def _same(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two messages say the same; an answer comes back in the next request."""
    return all(before.get(name) == after.get(name) for name in ("role", "content"))


def _note(text: str) -> _Said:
    return _Said(role="", side="remark", text=text)


def _asked(messages: Sequence[Mapping[str, Any]]) -> list[_Said]:
    turns = [_message(message) for message in messages]
    if len(turns) <= MAX_TURNS:
        return turns
    hidden = len(turns) - MAX_TURNS + 1
    return [*turns[:5], _note(f"{hidden} messages not shown"), *turns[5 + hidden :]]


def _message(message: Mapping[str, Any]) -> _Said:
    role = str(message.get("role", "message"))[:40]
    parts = [
        _as_text(message[name])
        for name in ("reasoning_content", "content", "tool_calls")
        if message.get(name)
    ]
    side = {"user": "asked", "assistant": "said"}.get(role, "given")
    return _Said(role=role, side=side, text="\n".join(parts) or "(empty)")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _answered(trial: Trial, exchange: Exchange, *, last: bool) -> list[_Said]:
    if exchange.error:
        return []
    turns = []
    if exchange.reasoning:
        turns.append(_Said(role="reasoning", side="thought", text=exchange.reasoning))
    for call in exchange.tool_calls[:8]:
        text = f"{call.name}({call.arguments})"
        turns.append(_Said(role="tool call", side="thought", text=text))
    if exchange.text or not turns:
        side = "answer" if not last or trial.ok is None else "right" if trial.ok else "wrong"
        turns.append(_Said(role="answer", side=side, text=exchange.text or "(empty answer)"))
    return turns


def _turn(said: _Said, expected: str, limit: int) -> Turn:
    """Return a bubble, its text cut to its ends and the right answer marked wherever it stands."""
    if not 2 <= len(expected) <= 200 or expected not in said.text:
        return Turn(role=said.role, side=said.side, pieces=((cut(said.text, limit), False),))
    pieces: list[tuple[str, bool]] = []
    shown = cut_around(said.text, expected, limit)
    for place, piece in enumerate(shown.split(expected, 20)):
        if place:
            pieces.append((expected, True))
        if piece:
            pieces.append((piece, False))
    return Turn(role=said.role, side=said.side, pieces=tuple(pieces))


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
