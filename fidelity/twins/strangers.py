"""Requests of other people, that run while a twin's request does."""

from __future__ import annotations

import random
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from fidelity.checks.together import first_of
from fidelity.endpoint.prometheus_text import pick
from fidelity.probes.dialogue import user
from fidelity.probes.filler import filler_of
from fidelity.twins.asking import sampling
from fidelity.words import Traffic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fidelity.probes.probe import Ask
    from fidelity.twins.room import Room

MORE_TOKENS = 400
"""Beyond the twin's own answer: strangers are still at work when it ends, and are left then."""
STARTED_S = 10.0
POLL_S = 0.004
MIXED: tuple[dict[str, Any], ...] = (
    {"temperature": 1.3},
    {"temperature": 0.7, "extra": {"top_p": 0.8}},
    {"temperature": 0.0, "extra": {"frequency_penalty": 1.5, "presence_penalty": 1.0}},
    {"temperature": 1.0, "extra": {"top_k": 5}},
    {"temperature": 0.0},
)
"""Sampling parameters that differ from a greedy request's in every way."""


class Seen:
    """How many requests the server said to compute, while strangers were there."""

    def __init__(self) -> None:
        """Nothing was looked at yet."""
        self.running: float | None = None
        """The least that was seen at the beginning and at the end, None without a gauge."""

    def take(self, running: float | None) -> None:
        """Keep the least of all looks."""
        if running is not None:
            self.running = running if self.running is None else min(self.running, running)


@asynccontextmanager
async def strangers(
    ask: Ask, room: Room, *, seed: str, count: int, tokens: int, mixed: bool = False
) -> AsyncIterator[Seen]:
    """Keep `count` other requests decoding; inside, the twin's own request is one more.

    The gauge is read before and, with the twin's request ended, after: `Seen.running` of n means
    that the twin's request ran beside n others all the time.
    """
    seen = Seen()
    try:
        async with anyio.create_task_group() as tasks:
            for index in range(count):
                longer = tokens + MORE_TOKENS
                tasks.start_soon(
                    partial(_stranger, ask, room, f"{seed} {index}", longer, index, mixed)
                )
            seen.take(await _until(ask, room, count))
            yield seen
            seen.take(await running(ask, room))
            tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise first_of(group) from None


async def running(ask: Ask, room: Room) -> float | None:
    """Return how many requests the server computes now, None where it does not tell."""
    if not room.running_gauges or not ask.client.server.has_metrics:
        return None
    return pick(await ask.client.metrics(), room.running_gauges)


async def _until(ask: Ask, room: Room, count: int) -> float | None:
    deadline = time.monotonic() + STARTED_S
    while True:
        found = await running(ask, room)
        if found is None or found >= count or time.monotonic() > deadline:
            return found
        await anyio.sleep(POLL_S)


async def _stranger(ask: Ask, room: Room, seed: str, tokens: int, index: int, mixed: bool) -> None:
    draw = random.Random(f"stranger {seed}")  # noqa: S311 - prompts, not secrets
    options: dict[str, Any] = dict(MIXED[index % len(MIXED)]) if mixed else {"temperature": 0.0}
    extra = {**sampling(room).get("extra", {}), **options.pop("extra", {})}
    text = filler_of(f"stranger {draw.random()}").sentences(1)[0]
    await ask.client.chat(
        [user(f"{text} Count from {draw.randint(1, 9)} to 90.")],
        max_tokens=tokens,
        seed=draw.randint(1, 10**6) if mixed else None,
        traffic=Traffic.DISRUPTIVE,
        extra=extra,
        **options,
    )
