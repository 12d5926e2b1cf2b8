"""Proofs that a request took the path that its twin is about; "" is a proof, words are a doubt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply
    from fidelity.twins.room import Room

UNREPORTED = "usage does not tell cached tokens"


def cold(reply: Reply, head: int) -> str:
    """Doubt that a request was computed from scratch.

    Args:
        reply: its answer.
        head: tokens that another prompt may begin with, which any request may have cached.
    """
    if reply.cached_tokens is None:
        return UNREPORTED
    if reply.cached_tokens > head:
        return f"{reply.cached_tokens} tokens of a request that had to be cold came from a cache"
    return ""


def cached(reply: Reply, head: int) -> str:
    """Doubt that a request read its prompt from a cache, beyond what all prompts share."""
    if reply.cached_tokens is None:
        return UNREPORTED
    if reply.cached_tokens <= head:
        return f"{reply.cached_tokens} cached tokens: the prefix was not read from a cache"
    return ""


def cached_alike(one: Reply, other: Reply) -> str:
    """Doubt that two requests read equally much from a cache; unreported counts as alike."""
    if one.cached_tokens != other.cached_tokens:
        return f"{one.cached_tokens} and {other.cached_tokens} cached tokens in arms of one path"
    return ""


def nothing_generated_came_from_cache(reply: Reply, prompt_tokens: int) -> str:
    """Doubt that the tokens behind the prompt were computed anew by this request."""
    if reply.cached_tokens is None:
        return UNREPORTED
    if reply.cached_tokens > prompt_tokens:
        return (
            f"{reply.cached_tokens} cached tokens for a prompt of {prompt_tokens}: generated tokens"
            " came from a cache"
        )
    return ""


def chunks(reply: Reply, room: Room) -> int | None:
    """Return in how many chunks a lone request was prefilled; None when the server cannot tell."""
    if room.chunk is None or reply.prompt_tokens is None or reply.cached_tokens is None:
        return None
    return math.ceil((reply.prompt_tokens - reply.cached_tokens) / room.chunk)


def batched(running: float | None) -> str:
    """Doubt that a request was computed beside others.

    Args:
        running: the highest count of running requests seen while it ran; None: no gauge.
    """
    if running is None:
        return "the server has no gauge of the requests that it computes at once"
    if running < 2:
        return f"{running:g} requests ran at once while the batch was sent"
    return ""


def first_of(*doubts: str) -> str:
    """Return the first doubt, "" when there is none."""
    return next((doubt for doubt in doubts if doubt), "")
