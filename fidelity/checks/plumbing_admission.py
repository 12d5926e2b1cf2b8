"""What a server does with too much: a context beyond its limit, and many requests at once."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, Unsupported, together
from fidelity.probes.dialogue import user
from fidelity.words import Traffic

if TYPE_CHECKING:
    from fidelity.checks.conformance import Collect, Wires
    from fidelity.checks.conformance_wire import Line, Wire

MOST_PROMPT_TOKENS = {"quick": 65_536, "standard": 262_144, "deep": 2_000_000}
"""Longest limit that a budget passes by one token: refused it costs nothing, but if not ..."""
_CROWD = 40
_ECHO_TOKENS = 24
_WORD = " a"
_BATCH_WORDS = 512
_HANDFUL_TOKENS = 4
_STEPS = 6
_SHORT = [user("Count from 1 to 5.")]


# ---- context


def _at_the_limit(limit: int | None, budget: str) -> Collect:
    """Send a prompt of exactly the limit, which leaves no room, and then one that just fits."""

    async def collect(line: Line) -> Wires:
        if limit is None:
            raise Unsupported("the server does not tell the limit of its context")
        if limit > MOST_PROMPT_TOKENS[budget]:
            raise Unsupported(
                f"a prompt of {limit} tokens is more than budget {budget} sends: a larger one does"
            )
        text = await _text_of(line, limit)
        wires = [await _long(line, text, max_tokens=1)]
        if budget != "quick":
            text = await _text_of(line, limit - _HANDFUL_TOKENS)
            wires.append(await _long(line, text, max_tokens=_HANDFUL_TOKENS))
            wires.append(line.note("asked", tokens=limit - _HANDFUL_TOKENS))
        return wires

    return collect


async def _long(line: Line, text: str, *, max_tokens: int) -> Wire:
    return await line.chat(
        [user(text)],
        label=f"a long prompt, max_tokens {max_tokens}",
        max_tokens=max_tokens,
        stream=False,
        temperature=0.0,
    )


async def _text_of(line: Line, tokens: int) -> str:
    """Return a text whose chat prompt has that many tokens; without a tokenizer about as many.

    Raises:
        Unsupported: neither a tokenizer nor usage tells how long a prompt is.
    """
    few, many = [await _count(line, n * _BATCH_WORDS) for n in (1, 2)]
    per_word = (many - few) / _BATCH_WORDS
    words = round((tokens - few) / per_word) + _BATCH_WORDS
    for _ in range(_STEPS):
        missing = tokens - await _count(line, words, few + per_word * (words - _BATCH_WORDS))
        if not missing:
            break
        words += math.ceil(missing / per_word)
    return _WORD * words


async def _count(line: Line, words: int, estimate: float | None = None) -> int:
    client, messages = line.client, [user(_WORD * words)]
    if client.server.dialect.tokenize_path and not client.server.tokenizer_distrust:
        return (await client.tokenize(messages)).count
    if estimate is not None:
        return round(estimate)
    sent = await line.chat(messages, label="measure", max_tokens=1, stream=False)
    told = sent.answer().usage.get("prompt_tokens")
    if told is None:
        raise Unsupported("neither a tokenizer nor usage tells how long a prompt is")
    return told


def _judge_limit(wires: Wires) -> list[str]:
    problems = _refusal_breaches(wires[0])
    if len(wires) > 1:
        told, asked = wires[1].answer().usage.get("prompt_tokens"), wires[2].facts["tokens"]
        if told not in {None, asked}:
            problems.append(f"{asked} prompt tokens were sent, and usage tells {told}")
    return problems


def _refusal_breaches(wire: Wire) -> list[str]:
    if wire.status == 200:
        told = wire.answer().usage.get("prompt_tokens")
        return [f"answered as if nothing were too long; usage tells {told} prompt tokens"]
    if not 400 <= wire.status < 500:
        return [f"answered {wire.status}, not 4xx: {wire.said!r}"]
    return [] if wire.said else [f"refused with {wire.status} and no word"]


def _room_beyond(limit: int | None) -> Collect:
    async def collect(line: Line) -> Wires:
        if limit is None:
            raise Unsupported("the server does not tell the limit of its context")
        sent = await line.chat(
            _SHORT,
            label=f"max_tokens {limit}",
            max_tokens=limit,
            stream=False,
            extra={"stop": [" ", "\n", "1", "e"]},
        )
        return [sent, await line.chat(_SHORT, label="the same", max_tokens=1, stream=False)]

    return collect


def _judge_room(wires: Wires) -> list[str]:
    """Refused, or taken with the whole prompt: a shorter answer is honest, a cut prompt is not."""
    sent, short = wires
    if sent.status != 200:
        return _refusal_breaches(sent)
    told, whole = (wire.answer().usage.get("prompt_tokens") for wire in (sent, short))
    return [] if told == whole else [f"{told} prompt tokens of {whole} were left"]


def _taken(wires: Wires) -> Wires:
    body = {
        "choices": [{"index": 0, "message": {"content": "1"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
    return [replace(wires[0], status=200).with_json(body), *wires[1:]]


_CUT = Damage(what="it is answered, with the prompt cut", apply=_taken)
OVERFLOWS = ("prompt_at_the_limit", "max_tokens_beyond_the_limit")


def overflow(name: str, limit: int | None, budget: str) -> Check:
    """Return a check of the context's limit; beyond quick, a prompt that just fits is sent too.

    Args:
        name: one of `OVERFLOWS`.
        limit: of prompt and answer together, None where the server does not tell.
        budget: of the run.
    """
    if name == "prompt_at_the_limit":
        return Check(
            name=name,
            title="a prompt that leaves no room for a token is refused, one that fits is taken",
            collect=_at_the_limit(limit, budget),
            judge=_judge_limit,
            damages=(_CUT,),
            optional=True,
            cost_tokens=0 if budget == "quick" else limit or 0,
        )
    return Check(
        name=name,
        title="prompt and max_tokens beyond the limit: refused, or taken with the whole prompt",
        collect=_room_beyond(limit),
        judge=_judge_room,
        damages=(_CUT,),
        optional=True,
        cost_requests=2,
    )


# ---- load


def _codes() -> list[str]:
    draw = random.Random("crowd")  # noqa: S311 - prompts, not secrets
    return [str(draw.randrange(10_000, 99_999)) for _ in range(_CROWD)]


async def _crowd(line: Line) -> Wires:
    """Many requests at once, every other one streamed; then the first by itself."""
    codes = _codes()

    async def one(index: int, code: str) -> Wire:
        return await line.chat(
            [user(f"Repeat exactly: {code} {code[::-1]}")],
            label=f"{code} {code[::-1]}",
            max_tokens=_ECHO_TOKENS,
            stream=bool(index % 2),
            temperature=0.0,
        )

    return await together(*(one(index, code) for index, code in enumerate(codes)))


def _judge_crowd(wires: Wires) -> list[str]:
    problems = []
    right = 0
    for wire in wires:
        if wire.status in {429, 503}:
            problems += [] if wire.said else [f"refused with {wire.status} and no word"]
        elif wire.status != 200:
            problems.append(f"answered {wire.status} under load: {wire.said!r}")
        else:
            breaches = _crowd_breaches(wire, wires)
            right += wire.label in "".join(wire.answer().text)
            problems += breaches
    answered = sum(wire.status == 200 for wire in wires)
    if not problems and answered and not right:
        raise Undecided("the model repeats no code even once: a partial answer would not show")
    return problems


def _crowd_breaches(wire: Wire, wires: Wires) -> list[str]:
    draft = wire.answer()
    text = "".join(draft.text).strip()
    if not draft.finish_reason:
        return [f"an answer under load ended without a finish_reason: {text!r}"]
    if draft.finish_reason == "stop" and text != wire.label and wire.label.startswith(text):
        return [f"a partial answer came as complete: {text!r} of {wire.label!r}"]
    foreign = [w.label for w in wires if w is not wire and w.label in text]
    return [f"{wire.label!r} was asked, and {foreign[0]!r} came"] if foreign else []


def _cut_one(wires: Wires) -> Wires:
    place = next(at for at, wire in enumerate(wires) if wire.status == 200 and not wire.streamed)
    body: dict[str, Any] = wires[place].json()
    body["choices"][0]["message"]["content"] = wires[place].label[:4]
    body["choices"][0]["finish_reason"] = "stop"
    return [*wires[:place], wires[place].with_json(body), *wires[place + 1 :]]


def _swapped(wires: Wires) -> Wires:
    place = next(at for at, wire in enumerate(wires) if at and not wire.streamed)
    body = wires[place].json()
    body["choices"][0]["message"]["content"] = wires[0].label
    return [*wires[:place], wires[place].with_json(body), *wires[place + 1 :]]


LOAD = (
    Check(
        name="answers_are_whole_or_refused",
        title=f"of {_CROWD} requests at once each is answered whole, or refused with 429 or 503",
        collect=_crowd,
        judge=_judge_crowd,
        damages=(
            Damage(what="one answer is cut", apply=_cut_one),
            Damage(what="two answers are swapped", apply=_swapped),
        ),
        traffic=Traffic.LOAD,
        cost_requests=_CROWD,
        cost_tokens=30 * _CROWD,
    ),
)
