"""What surrounds the prompts of one batch: one at a time, and events that all of them wait for."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


class Scene:
    """Shared by the scripts of one batch of prompts; for one event loop.

    Scripts that `meet` go on together: when the last one has come, one of them makes the event
    happen (a flood, a flush, a row of other requests), and all see the server behind it.
    """

    def __init__(self, *, damaged: bool = False) -> None:
        """Nobody is here yet; `damaged`: this is the positive control."""
        self.damaged = damaged
        self._inside = 0
        self._waiting = 0
        self._happening = False
        self._happened = False
        self._failed = False
        self._changed: anyio.Condition | None = None
        self._turn: anyio.Lock | None = None

    @asynccontextmanager
    async def member(self) -> AsyncIterator[None]:
        """Count a script in; one that fails on its way does not keep the others waiting."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            async with self._condition:
                self._condition.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep the other scripts of this batch from sending anything."""
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            yield

    async def meet(self, event: Callable[[], Awaitable[None]]) -> bool:
        """Wait for all scripts that are inside; one of them makes the event happen.

        Returns: False when the event failed in the script that made it happen.
        """
        async with self._condition:
            self._waiting += 1
            self._condition.notify_all()
            while not self._happened:
                if self._waiting >= self._inside and not self._happening:
                    self._happening = True
                    await self._make(event)
                else:
                    await self._condition.wait()
            self._waiting -= 1
        return not self._failed

    async def _make(self, event: Callable[[], Awaitable[None]]) -> None:
        try:
            await event()
        except BaseException:
            self._failed = True
            raise
        finally:
            self._happened = True
            self._condition.notify_all()

    @property
    def _condition(self) -> anyio.Condition:
        if self._changed is None:
            self._changed = anyio.Condition()
        return self._changed
