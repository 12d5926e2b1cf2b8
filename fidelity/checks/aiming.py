"""Brings a growing conversation to a length of a chosen residue, by words in its last question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.probes.calibration import counter_of
from fidelity.probes.dialogue import user
from fidelity.probes.filler import pad_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.probes.probe import Ask

_STEPS = 6


async def aimed(
    ask: Ask,
    history: Sequence[Mapping[str, Any]],
    question: str,
    *,
    modulus: int,
    residue: int,
    tools: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return history and question whose prompt has `residue` modulo `modulus` tokens.

    Words are put before the question until the count fits; without a tokenizer endpoint each step
    costs a request of one token. What was reached shows in the usage of the answer.

    Raises:
        EndpointError: the server did not answer.
    """
    words = 0
    messages: list[dict[str, Any]] = []
    for _ in range(_STEPS):
        messages = [*map(dict, history), user(_with_words(question, words))]
        tokens = await _count(ask, messages, tools)
        missing = 0 if tokens is None else (residue - tokens) % modulus
        if not missing:
            break
        words += missing
    return messages


async def _count(
    ask: Ask, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> int | None:
    counter = counter_of(ask.client)
    if counter.has_tokenizer:
        counted = await counter.count(messages, tools=tools)
        if counted.exact:
            return counted.tokens
    reply = await ask.chat(messages, label="measure", max_tokens=1, tools=tools)
    return reply.prompt_tokens


def _with_words(question: str, words: int) -> str:
    return f"(Note: {pad_words(words, question)}.) {question}" if words else question
