"""Makes a failing chat smaller while it keeps failing: turns first, then what is in them.

Delta debugging (Zeller and Hildebrandt 2002), deterministic: the same answers give the same end.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fidelity.triage.conversation import Conversation, Message, text_of
from fidelity.triage.judge import Judge, names
from fidelity.triage.pieces import (
    Block,
    long_texts,
    of_blocks,
    parts_of,
    simpler,
    taken_apart,
    with_text,
)

Part = TypeVar("Part")
Fails = Callable[[Conversation], Awaitable[bool]]
"""Tells whether a smaller chat still fails; False also when it cannot be sent."""


async def shrink(
    conversation: Conversation,
    judge: Judge,
    facts: Sequence[str],
    fails: Fails,
    *,
    pinned: Sequence[Message] = (),
) -> Conversation:
    """Return a smaller conversation that still fails.

    Args:
        conversation: that fails.
        judge: knows what a smaller one must still hold.
        facts: expected texts that stand before the question; they stay.
        fails: asks the server; raises `Spent` when nothing more may be asked.
        pinned: messages that stay.
    """

    async def still(candidate: Conversation) -> bool:
        return judge.answerable(candidate, facts, pinned) and await fails(candidate)

    found = await _fewer_turns(conversation, still)
    found = await _simpler(found, still)
    found = await _shorter_texts(found, facts, still)
    return await _fewer_turns(found, still)


async def _fewer_turns(conversation: Conversation, still: Fails) -> Conversation:
    head, question = taken_apart(conversation)

    async def fails(kept: list[Block]) -> bool:
        return await still(of_blocks(conversation, [*kept, question]))

    kept = await minimized(head, fails)
    return of_blocks(conversation, [*kept, question])


async def _simpler(conversation: Conversation, still: Fails) -> Conversation:
    while True:
        for _, candidate in simpler(conversation):
            if await still(candidate):
                conversation = candidate
                break
        else:
            return conversation


async def _shorter_texts(
    conversation: Conversation, facts: Sequence[str], still: Fails
) -> Conversation:
    for at in long_texts(conversation):
        conversation = await _shorter_text(conversation, at, facts, still)
    return conversation


async def _shorter_text(
    conversation: Conversation, at: int, facts: Sequence[str], still: Fails
) -> Conversation:
    parts = parts_of(text_of(conversation.messages[at]))
    # what carries a fact stays whole: half a statement answers nothing
    fixed = [any(names(part, fact) for fact in facts) for part in parts]

    async def fails(kept: list[int]) -> bool:
        return await still(_with_parts(conversation, at, parts, fixed, kept))

    kept = await minimized([i for i, is_fixed in enumerate(fixed) if not is_fixed], fails)
    return _with_parts(conversation, at, parts, fixed, kept)


def _with_parts(
    conversation: Conversation, at: int, parts: list[str], fixed: list[bool], kept: list[int]
) -> Conversation:
    text = "".join(part for i, part in enumerate(parts) if fixed[i] or i in kept).strip()
    return with_text(conversation, at, text or "OK.")


async def minimized(
    parts: Sequence[Part], fails: Callable[[list[Part]], Awaitable[bool]]
) -> list[Part]:
    """Return a subset of parts, in order, that still fails and of which no single chunk can go."""
    kept = list(parts)
    if not kept or await fails([]):
        return []
    chunks = 2
    while len(kept) > 1:
        size = -(-len(kept) // chunks)
        starts = range(0, len(kept), size)
        for start in starts:
            rest = kept[:start] + kept[start + size :]
            if rest and await fails(rest):
                kept, chunks = rest, max(chunks - 1, 2)
                break
        else:
            if size == 1:
                break
            chunks = min(len(kept), chunks * 2)
    return kept
