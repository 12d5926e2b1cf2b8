"""Backing off before the server has to refuse: its own queue gauge is watched, and others go first.

For servers that other people use; a server that we launched has no other users.
"""

import time
from collections.abc import Awaitable, Callable

import anyio

from fidelity.endpoint.pacing import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, Pacer
from fidelity.errors import Overloaded

POLL_EVERY_S = 2.0
TOLERATED_QUEUE = 2


class QueueWatch:
    """Before a passive request: while requests of others wait in the server's queue, wait too."""

    def __init__(
        self,
        read_queue: Callable[[], Awaitable[float | None]],
        pacer: Pacer,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read_queue` returns the number of waiting requests, None when the server is silent."""
        self._read_queue = read_queue
        self._pacer = pacer
        self._sleep = sleep
        self._clock = clock
        self._next_poll = 0.0
        self._polling = anyio.Lock()
        self.backed_off = 0
        """How often the run waited for somebody else's queue."""

    async def settle(self) -> None:
        """Return when the queue holds no more than our own requests, or was read just now.

        Raises:
            Overloaded: it did not shrink within the cap on waiting.
        """
        async with self._polling:
            waited_s = 0.0
            while self._clock() >= self._next_poll:
                waiting = await self._read_queue()
                others = 0 if waiting is None else waiting - self._pacer.in_flight
                if others <= TOLERATED_QUEUE:
                    self._next_poll = self._clock() + POLL_EVERY_S
                    return
                self._pacer.halve()
                pause = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S + waited_s)
                if waited_s + pause > self._pacer.max_wait_s:
                    raise Overloaded(
                        f"the server's own queue holds {others:.0f} requests of others after"
                        f" {waited_s:.0f} s of waiting: come back when it is idle"
                    )
                self.backed_off += 1
                waited_s += pause
                await self._sleep(pause)
