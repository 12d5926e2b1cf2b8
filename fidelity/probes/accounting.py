"""Where a lost turn was lost, from token counts alone: before the model saw it, or after.

Three witnesses, none of which needs a log: the prompt must grow from turn to turn by what was said
in between; it cannot be shorter than its text allows; and a tokenizer can count that text.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from fidelity.errors import CapabilityMissing, EndpointError
from fidelity.verdicts.evidence import LOST_IN_RENDERING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.endpoint.client import Client
    from fidelity.endpoint.replies import Reply

LOST_IN_ATTENTION = "attention"
_MARKS_TOKENS = 8
"""A generation prompt may end in marks that are not rendered again in a finished turn."""
_MOST_CHARS_PER_TOKEN = 9
"""No vocabulary packs English prose tighter than this over a whole conversation."""
_SHARE_KEPT = 0.9


def shrank(earlier: Reply, later: Reply) -> bool:
    """Return True when a prompt holds less than the turn before it and the answer to that.

    Reasoning need not be rendered again, so it is not counted.
    """
    if earlier.prompt_tokens is None or later.prompt_tokens is None:
        return False
    return later.prompt_tokens < earlier.prompt_tokens + _visible(earlier) - _MARKS_TOKENS


def too_short(messages: Sequence[Mapping[str, Any]], prompt_tokens: int | None) -> bool:
    """Return True when a prompt has fewer tokens than any vocabulary needs for its text."""
    chars = sum(len(text) for text in _texts(messages))
    return prompt_tokens is not None and prompt_tokens < chars / _MOST_CHARS_PER_TOKEN


def lost_by_length(messages: Sequence[Mapping[str, Any]], reply: Reply) -> str:
    """Return where a single request was lost: "rendering" when its prompt cannot hold its text."""
    if reply.prompt_tokens is None:
        return ""
    if too_short(messages, reply.prompt_tokens):
        return LOST_IN_RENDERING
    return LOST_IN_ATTENTION


async def where_lost(
    client: Client,
    messages: Sequence[Mapping[str, Any]],
    turns: Sequence[Reply],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return "rendering", "attention", or "" where the counts cannot tell.

    Args:
        client: to ask a tokenizer, where there is one.
        messages: of the last turn.
        turns: replies of one growing conversation, in order; the last answers `messages`.
        tools: that the requests offered; their text stands in the prompt too.
    """
    last = turns[-1].prompt_tokens
    if last is None:
        return ""
    pairs = itertools.pairwise(turns)
    if too_short(messages, last) or any(shrank(earlier, later) for earlier, later in pairs):
        return LOST_IN_RENDERING
    try:
        counted = [(await client.tokenize(prompt=text)).count for text in _texts(messages)]
        if tools:
            counted.append(await _tool_tokens(client, messages[-1:], tools))
    except (CapabilityMissing, EndpointError):
        return LOST_IN_ATTENTION if len(turns) > 1 else ""
    return LOST_IN_RENDERING if last < _SHARE_KEPT * sum(counted) else LOST_IN_ATTENTION


async def _tool_tokens(
    client: Client,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
) -> int:
    with_tools, without = [
        (await client.tokenize(messages, tools=offered)).count for offered in (tools, ())
    ]
    return max(0, with_tools - without)


def _visible(reply: Reply) -> int:
    """Return the tokens of an answer that its next prompt must hold."""
    if reply.completion_tokens is None:
        return 0
    if reply.reasoning and reply.reasoning_tokens is None:
        return 0
    return max(0, reply.completion_tokens - (reply.reasoning_tokens or 0))


def _texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        text for message in messages if isinstance(text := message.get("content"), str) and text
    ]
