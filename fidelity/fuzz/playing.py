"""Plays a script against a live server and keeps what every answer was an answer to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from fidelity.checks.conversation import as_turn
from fidelity.checks.together import together
from fidelity.errors import EndpointError
from fidelity.fuzz.script import Abort, AnyStep, Chat, Flood, Flush, Message, Script, Together
from fidelity.probes.dialogue import user
from fidelity.words import Traffic

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply
    from fidelity.probes.probe import Ask

FLUSH_TRIES = 60
FLUSH_PAUSE_S = 0.05
"""A server that still cleans up after an abort refuses to flush: it is asked again for 3 s."""
CLOSED_PAUSE_S = 0.1
"""Until a server has seen that a connection is closed; nobody types faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Can:
    """What the server is able and allowed to do.

    Attributes:
        logprobs: alternatives of generated tokens.
        flush: the cache may be emptied.
        call: the abort call may be used.
        given_text: logprobs of the prompt, which read no cache.
        cache_salt: the request field that separates caches, "" where there is none.
        dtype: that the server says it computes in; None when it does not tell.
        tells_cached: usage tells cached tokens: where it tells none, there were none.
    """

    logprobs: bool = False
    flush: bool = False
    call: bool = False
    given_text: bool = False
    cache_salt: str = ""
    dtype: str | None = None
    tells_cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One answer, and all that it depends on."""

    label: str
    chat: Chat
    messages: tuple[Message, ...]
    reply: Reply

    @property
    def options(self) -> dict[str, Any]:
        """What the request asked for beside its messages, to ask it again."""
        chat = self.chat
        return {
            "max_tokens": chat.max_tokens,
            "temperature": chat.temperature,
            "tools": chat.tools or None,
        }


class Player:
    """Conversations of one script in progress."""

    def __init__(self, ask: Ask, can: Can) -> None:
        """Send nothing yet."""
        self._ask = ask
        self._can = can
        self._turns: dict[str, list[tuple[Message, ...]]] = {}
        """Of each conversation, the messages of each turn with its answer."""

    async def play(self, script: Script) -> list[Played]:
        """Play all steps; return the answers in the order of the script.

        Raises:
            EndpointError: the server did not answer as it should.
        """
        played: list[Played] = []
        for number, step in enumerate(script.steps, start=1):
            played += await self._step(number, step)
        return played

    async def _step(self, number: int, step: AnyStep) -> list[Played]:
        match step:
            case Flush():
                await flush(self._ask)
                return []
            case Flood():
                chat = Chat(conversation=f"flood {number}", say=step.say, max_tokens=8)
                return [await self._chat(number, chat, Traffic.DISRUPTIVE)]
            case Together():
                many = len(step.steps) > 3
                traffic = Traffic.LOAD if many else Traffic.PASSIVE
                jobs = [partial(self._one, number, each, traffic) for each in step.steps]
                return [one for found in await together(jobs) for one in found]
        return await self._one(number, step, Traffic.PASSIVE)

    async def _one(self, number: int, step: Chat | Abort, traffic: Traffic) -> list[Played]:
        if isinstance(step, Abort):
            await self._abort(number, step, traffic)
            return []
        return [await self._chat(number, step, traffic)]

    async def _chat(self, number: int, chat: Chat, traffic: Traffic) -> Played:
        turns = self._turns.setdefault(chat.conversation, [])
        if chat.of:
            turns[:] = self._turns.get(chat.of, [])[: chat.turns]
        if chat.retry and turns:
            turns.pop()
        turn = (*chat.given, user(chat.say))
        messages = (*(message for each in turns for message in each), *turn)
        label = f"{number}. {_what(chat, traffic)}"
        reply = await self._ask.chat(
            list(messages),
            label=label,
            max_tokens=chat.max_tokens,
            temperature=chat.temperature,
            seed=chat.seed,
            stream=chat.stream,
            tools=chat.tools or None,
            traffic=traffic,
            **numbers(self._can),
        )
        turns.append((*turn, as_turn(reply)))
        return Played(label=label, chat=chat, messages=messages, reply=reply)

    async def _abort(self, number: int, step: Abort, traffic: Traffic) -> None:
        turns = self._turns.setdefault(step.conversation, [])
        turn = (*step.given, user(step.say))
        by_call = step.by_call and self._can.call
        way = "by call" if by_call else "by closing"
        reply = await self._ask.chat(
            [*(message for each in turns for message in each), *turn],
            label=f"{number}. abort {step.conversation} after {step.after_deltas} deltas, {way}",
            max_tokens=step.max_tokens,
            temperature=0.0,
            tools=step.tools or None,
            abort_after_tokens=step.after_deltas,
            abort_by_call=by_call,
            traffic=Traffic.DISRUPTIVE if by_call else traffic,
        )
        if not by_call:
            await anyio.sleep(CLOSED_PAUSE_S)
        if step.keep_partial and reply.text:
            turns.append((*turn, as_turn(reply)))


def _what(chat: Chat, traffic: Traffic) -> str:
    if traffic is Traffic.DISRUPTIVE:
        return "flood"
    return f"{'retry' if chat.retry else 'fork' if chat.of else 'chat'} {chat.conversation}"


def numbers(can: Can) -> dict[str, Any]:
    """Return the options by which an answer brings its numbers."""
    return {"top_logprobs": TOP} if can.logprobs else {}


TOP = 5
"""Alternatives asked for: what every server allows."""


async def flush(ask: Ask) -> None:
    """Empty the server's cache; one that is still busy is given a moment.

    Raises:
        EndpointError: it refuses for too long.
    """
    for _ in range(FLUSH_TRIES - 1):
        try:
            await ask.client.flush_cache()
        except EndpointError:
            await anyio.sleep(FLUSH_PAUSE_S)
        else:
            return
    await ask.client.flush_cache()
