"""How a twin sends its requests: greedy, with alternatives, of exact length where it can be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.probes.probe import Ask
    from fidelity.twins.prompts import Prompt
    from fidelity.twins.room import Room


async def generate(
    ask: Ask,
    room: Room,
    prompt: Prompt | Sequence[int],
    tokens: int,
    *,
    label: str,
    altered: bool = False,
    bypass: bool = False,
    **options: Any,
) -> Reply:
    """Generate greedily; a `Prompt` goes as ids where the server takes them, else as chat.

    Args:
        ask: of the trial.
        room: the server.
        prompt: what to answer.
        tokens: to generate, exactly so many where the server can be told.
        label: of the exchange.
        altered: take the prompt with the altered token.
        bypass: past the prefix cache, by asking for the logprob of the last given token.
        options: of the request, on top.
    """
    options = {**sampling(room), **options, "max_tokens": tokens, "label": label}
    options.setdefault("stream", False)
    ids = _ids(prompt, altered=altered)
    if ids is None:
        options.setdefault("thinking", room.thinking)
        return counted(await ask.chat(_messages(prompt, altered=altered), **options), room)
    if bypass:
        options |= {"prompt_logprobs": 1, "prompt_logprobs_start": len(ids) - 1}
    return counted(await ask.complete(ids, **options), room)


async def score(ask: Ask, room: Room, ids: Sequence[int], start: int, *, label: str) -> Reply:
    """Score given tokens from `start` on, in one prefill past the prefix cache."""
    reply = await ask.complete(
        list(ids),
        label=label,
        max_tokens=1,
        temperature=0.0,
        stream=False,
        prompt_logprobs=room.tops,
        prompt_logprobs_start=start,
    )
    return counted(reply, room)


def counted(reply: Reply, room: Room) -> Reply:
    """Return a reply with 0 cached tokens where a server that tells them elsewhere tells none.

    Several leave the field out of a request's usage when nothing came from the cache.
    """
    untold = reply.cached_tokens is None and reply.prompt_tokens is not None
    return replace(reply, cached_tokens=0) if untold and room.tells_cached else reply


def sampling(room: Room) -> dict[str, Any]:
    """Return what every request of a twin asks for."""
    options: dict[str, Any] = {"temperature": 0.0}
    if room.graded:
        options["top_logprobs"] = room.tops
    if room.has_ids:
        options["return_token_ids"] = True
    if room.ignores_eos:
        options["extra"] = {"ignore_eos": True}
    return options


def _ids(prompt: Prompt | Sequence[int], *, altered: bool) -> list[int] | None:
    if isinstance(prompt, (list, tuple)):
        return list(prompt)
    found = prompt.altered_ids if altered else prompt.ids  # type: ignore[union-attr]
    return None if found is None else list(found)


def _messages(prompt: Any, *, altered: bool) -> list[dict[str, str]]:
    messages: list[dict[str, str]] = prompt.altered if altered else prompt.messages
    return messages
