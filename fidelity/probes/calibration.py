"""Counts prompts in the deployment's own tokens: by its tokenizer, else as usage taught us.

A count is `exact` when a tokenizer endpoint gave it. The number that counts in the end is the
server's own usage of the request that was sent; a tokenizer that contradicts it is an error.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from fidelity.errors import CapabilityMissing, EndpointError
from fidelity.probes.filler import filler_of, numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.endpoint.client import Client

_SAMPLE_LINES = (4, 44)
_GUESSED_CHARS_PER_TOKEN = 4.0
_TURN_TOKENS = 4


class Count(NamedTuple):
    """Tokens of a prompt, and whether the deployment counted them itself."""

    tokens: int
    exact: bool


class TokenCounter:
    """Counts for one client; for one event loop."""

    def __init__(self, client: Client) -> None:
        """Send nothing yet."""
        self._client = client
        self._fit: tuple[float, float] | None = None
        self._fitting = anyio.Lock()
        self.has_tokenizer = True
        """False once the deployment turned out to have none that can be believed."""

    async def count(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
    ) -> Count:
        """Return the tokens of a chat prompt, generation prompt included.

        Raises:
            EndpointError: the server did not answer.
        """
        if self.has_tokenizer:
            try:
                counted = await self._client.tokenize(messages, tools=tools, thinking=thinking)
            except CapabilityMissing:
                self.has_tokenizer = False
            else:
                return Count(counted.count, exact=True)
        base, per_char = await self._calibrated()
        chars = sum(len(str(message.get("content") or "")) for message in messages)
        turns = _TURN_TOKENS * (len(messages) - 1)
        return Count(round(base + turns + per_char * chars), exact=False)

    async def _calibrated(self) -> tuple[float, float]:
        """Return tokens of an empty prompt and tokens per character of filler, from usage."""
        async with self._fitting:
            if self._fit is None:
                few, many = [await self._sample(lines) for lines in _SAMPLE_LINES]
                self._fit = fit_line(few, many)
        return self._fit

    async def _sample(self, lines: int) -> tuple[int, int | None]:
        text = numbered(filler_of("calibration").sentences(lines))
        reply = await self._client.chat([{"role": "user", "content": text}], max_tokens=1)
        return len(text), reply.prompt_tokens


def fit_line(few: tuple[int, int | None], many: tuple[int, int | None]) -> tuple[float, float]:
    """Return (base tokens, tokens per character) through two samples of (characters, tokens).

    Without usage an English rule of thumb stands in.

    Raises:
        EndpointError: a longer text took no more tokens: usage cannot be believed.
    """
    if few[1] is None or many[1] is None:
        return float(_TURN_TOKENS), 1 / _GUESSED_CHARS_PER_TOKEN
    per_char = (many[1] - few[1]) / (many[0] - few[0])
    if per_char <= 0:
        raise EndpointError(
            f"usage says {few[1]} prompt tokens for {few[0]} characters and {many[1]} for"
            f" {many[0]}: prompts cannot be measured by it"
        )
    return few[1] - per_char * few[0], per_char


_counters: weakref.WeakKeyDictionary[Client, TokenCounter] = weakref.WeakKeyDictionary()


def counter_of(client: Client) -> TokenCounter:
    """Return the counter of a client, one for its whole life."""
    counter = _counters.get(client)
    if counter is None:
        counter = _counters[client] = TokenCounter(client)
    return counter
