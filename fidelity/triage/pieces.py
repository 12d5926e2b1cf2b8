"""Takes a chat apart so that what is left is a valid chat: turns, tool exchanges, texts."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fidelity.triage.conversation import RESULTS, Conversation, Message, text_of

Block = tuple[Message, ...]
ACKNOWLEDGEMENT = "OK."
_HEADS = ("system", "developer")
_LONG = 160
"""A text of more characters is worth being cut."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def blocks_of(messages: Sequence[Message]) -> list[Block]:
    """Return messages in blocks that can go by themselves: a system message, or a whole turn.

    A turn is a user message with all that follows it: tool calls stay with their results.
    """
    blocks: list[list[Message]] = []
    for message in messages:
        opens = message["role"] in {"user", *_HEADS}
        if not blocks or opens or blocks[-1][0]["role"] in _HEADS:
            blocks.append([])
        blocks[-1].append(message)
    return [tuple(block) for block in blocks]


def taken_apart(conversation: Conversation) -> tuple[list[Block], Block]:
    """Return the blocks that can go, and the question with what follows it, which stays."""
    context = conversation.context
    return blocks_of(context), conversation.messages[len(context) :]


def of_blocks(conversation: Conversation, blocks: Sequence[Block]) -> Conversation:
    """Return the conversation with these blocks for its messages."""
    return replace(conversation, messages=tuple(m for block in blocks for m in block))


def simpler(conversation: Conversation) -> Iterator[tuple[str, Conversation]]:
    """Yield simpler conversations, each with what was simplified; the question stays as it is."""
    head, question = taken_apart(conversation)
    ways: tuple[tuple[str, Callable[[Block], Block]], ...] = (
        ("tool exchanges left out", _without_tools),
        ("reasoning left out", _without_reasoning),
        ("answers replaced by OK", _acknowledged),
    )
    for name, way in ways:
        changed = [way(block) for block in head]
        if changed == head:
            continue
        yield name, of_blocks(conversation, [*changed, question])
        for at, block in enumerate(head):
            if changed[at] != block:
                one = [*head[:at], changed[at], *head[at + 1 :], question]
                yield f"{name}, in turn {at + 1}", of_blocks(conversation, one)
    calls = any(_calls(m) or m["role"] in RESULTS for m in conversation.messages)
    if conversation.tools and not calls:
        yield "tools not offered", replace(conversation, tools=())


def _calls(message: Message) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))


def _without_tools(block: Block) -> Block:
    kept = tuple(m for m in block if m["role"] not in RESULTS and not _calls(m))
    return kept or block


def _without_reasoning(block: Block) -> Block:
    dropped = ("reasoning_content", "reasoning")
    return tuple({k: v for k, v in m.items() if k not in dropped} for m in block)


def _acknowledged(block: Block) -> Block:
    return tuple(
        {"role": "assistant", "content": ACKNOWLEDGEMENT}
        if m["role"] == "assistant" and not _calls(m) and len(text_of(m)) > len("OK.")
        else m
        for m in block
    )


def long_texts(conversation: Conversation) -> list[int]:
    """Return where texts stand that are worth being cut, longest first; never the question."""
    sizes = {
        at: len(text_of(message))
        for at, message in enumerate(conversation.context)
        if isinstance(message.get("content"), str)
    }
    return sorted((at for at, size in sizes.items() if size > _LONG), key=lambda at: -sizes[at])


def parts_of(text: str) -> list[str]:
    """Return a text in lines, or in sentences where it has few lines; joined they are the text."""
    lines = text.splitlines(keepends=True)
    if len(lines) >= 4:
        return lines
    sentences: list[str] = []
    start = 0
    for found in _SENTENCE.finditer(text):
        sentences.append(text[start : found.end()])
        start = found.end()
    return [*sentences, text[start:]] if start < len(text) else sentences


def with_text(conversation: Conversation, at: int, text: str) -> Conversation:
    """Return the conversation with another text in one message; images and the like stay."""
    messages = list(conversation.messages)
    content: Any = messages[at].get("content")
    if isinstance(content, list):
        kept = [p for p in content if not (isinstance(p, Mapping) and "text" in p)]
        content = [{"type": "text", "text": text}, *kept]
    else:
        content = text
    messages[at] = {**messages[at], "content": content}
    return replace(conversation, messages=tuple(messages))


def filler(step: int) -> str:
    """Return filler, longer with each step: a word and a mark, which differ in tokens."""
    return " ok" * (step // 2) + "!" * (step % 2)


def lengthened(conversation: Conversation, step: int) -> Conversation:
    """Return the same conversation, some filler longer, where that means nothing.

    It goes behind the last acknowledgement before the question, else behind the first text.
    """
    if not step:
        return conversation
    context = conversation.context
    plain = [i for i, m in enumerate(context) if isinstance(m.get("content"), str)]
    answers = [i for i in plain if context[i]["role"] == "assistant" and text_of(context[i])]
    at = answers[-1] if answers else plain[0] if plain else len(context)
    text = text_of(conversation.messages[at])
    if at == len(context):
        return with_text(conversation, at, f"{filler(step).strip()} {text}")
    return with_text(conversation, at, text + filler(step))


def salted(conversation: Conversation, salt: str) -> Conversation:
    """Return the conversation with an opening that no server has seen: nothing of it is cached."""
    first = (i for i, m in enumerate(conversation.messages) if isinstance(m.get("content"), str))
    at = next(first, len(conversation.context))
    return with_text(conversation, at, f"{salt} {text_of(conversation.messages[at])}")
