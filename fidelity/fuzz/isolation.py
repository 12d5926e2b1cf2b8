"""The same messages once more, alone and cold: how that is done, and whether it was really so.

An answer that came out of a spoilt cache must not be compared with another one out of it. In order
of preference: flush the cache; ask for the prompt's logprobs, which read no cache; give the request
a cache of its own; begin with another line. The first three keep every token.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fidelity.errors import CapSpent, TrafficRefused
from fidelity.fuzz.playing import Can, Played, flush, numbers
from fidelity.probes.dialogue import user
from fidelity.words import Traffic

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply
    from fidelity.fuzz.script import Message
    from fidelity.probes.probe import Ask

MOST_SHARED_TOKENS = 16
"""Of a prompt with another first line, on top of the template's own beginning."""
OTHER_END = "Say it once."


class Way(StrEnum):
    """How isolation is got."""

    FLUSH = "flushed cache"
    GIVEN_TEXT = "logprobs of the prompt"
    CACHE_SALT = "cache of its own"
    OTHER_LINE = "another first line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """An answer in isolation.

    Attributes:
        same_tokens: its prompt was the very same; otherwise only the fact can be compared.
        trouble: why it was not isolated; "" when nothing speaks against it.
    """

    reply: Reply
    same_tokens: bool
    trouble: str = ""


def way_of(can: Can) -> Way:
    """Return the best way that a server offers."""
    if can.flush:
        return Way.FLUSH
    if can.given_text:
        return Way.GIVEN_TEXT
    return Way.CACHE_SALT if can.cache_salt else Way.OTHER_LINE


async def alone(
    ask: Ask, played: Played, can: Can, *, seed: str, altered: bool = False, label: str = "alone"
) -> Alone:
    """Ask the messages of an answer again, alone.

    A flush, logprobs of the prompt and another first line are cold by construction: usage would
    only confirm it. Of a cache of its own usage has to tell.

    Args:
        ask: keeps the exchange.
        played: the answer.
        can: what the server offers.
        seed: of a first line or a cache's name, unique in the run.
        altered: the damage of the positive control: the fact and the question are others.
        label: of the exchange.
    """
    options: dict[str, Any] = {"seed": seed, "altered": altered, "label": label}
    try:
        return await _by(way_of(can), ask, played, can, **options)
    except CapSpent:
        raise
    except TrafficRefused:  # a prompt too long for its logprobs
        without = replace(can, given_text=False)
        if way_of(can) is not Way.GIVEN_TEXT:
            raise
        return await _by(way_of(without), ask, played, without, **options)


async def _by(
    way: Way, ask: Ask, played: Played, can: Can, *, seed: str, altered: bool, label: str
) -> Alone:
    messages = list(played.messages)
    if altered:
        messages = [_altered(message, played.chat.expect) for message in messages]
        # a server that drops the facts must still be seen to get another question
        messages[-1] = {**messages[-1], "content": f"{messages[-1].get('content', '')} {OTHER_END}"}
    options: dict[str, Any] = {**played.options, **numbers(can)}
    match way:
        case Way.FLUSH:
            await flush(ask)
        case Way.GIVEN_TEXT:
            options["prompt_logprobs"] = 0
        case Way.CACHE_SALT:
            options["extra"] = {can.cache_salt: f"alone {seed}"}
        case Way.OTHER_LINE:
            messages = _with_first_line(messages, seed)
    label = f"{played.label}: {label}"
    reply = await ask.chat(messages, label=label, traffic=Traffic.PASSIVE, **options)
    most = 0
    if way is Way.OTHER_LINE:
        most = MOST_SHARED_TOKENS
        if (reply.cached_tokens or 0) > most:
            most += await _head_tokens(ask, played, can, seed=seed, label=label)
    trouble = _trouble(reply, way, most=most, tells=can.tells_cached)
    return Alone(reply=reply, same_tokens=way is not Way.OTHER_LINE, trouble=trouble)


async def _head_tokens(ask: Ask, played: Played, can: Can, *, seed: str, label: str) -> int:
    """Return how much of any prompt comes from a cache: a system prompt, tools, the template.

    Measured by a prompt that shares nothing else: one word after yet another first line.
    """
    options = {**played.options, **numbers(can), "max_tokens": 1}
    shortest = _with_first_line([user(OTHER_END)], f"{seed} head")
    reply = await ask.chat(
        shortest, label=f"{label}, what all prompts share", traffic=Traffic.PASSIVE, **options
    )
    return reply.cached_tokens or 0


def _trouble(reply: Reply, way: Way, *, most: int, tells: bool) -> str:
    cached = reply.cached_tokens
    if cached is None:
        if way is not Way.CACHE_SALT or tells:  # a server that tells of hits leaves out a zero
            return ""
        return f"usage does not tell that the {way} kept the isolated request out of the cache"
    if cached > most:
        return f"{cached} tokens of the isolated request came from a cache in spite of the {way}"
    return ""


def other_code(code: str) -> str:
    """Return a code of which every digit is another one."""
    return "".join(str((int(digit) + 3) % 10) for digit in code)


def _altered(message: Message, code: str) -> Message:
    other = other_code(code)
    content = message.get("content")
    if not isinstance(content, str) or not code:
        return message
    return {**message, "content": content.replace(code, other)}


def _with_first_line(messages: list[Message], seed: str) -> list[Message]:
    draw = random.Random(f"alone {seed}")  # noqa: S311 - a prompt, not a secret
    first = messages[0]
    line = f"Shelf {draw.randint(100_000, 999_999)}.\n"
    return [{**first, "content": f"{line}{first['content']}"}, *messages[1:]]
