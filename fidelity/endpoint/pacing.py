"""How fast a run may go: slots, Retry-After, exponential backoff, and a cap on waiting.

One pacer per server. A 429 or 503 slows every request of the run, not only the one that got it.
"""

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import anyio

from fidelity.errors import Overloaded
from fidelity.words import Traffic

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0


@dataclass(slots=True)
class Waiting:
    """How long one request has waited for an overloaded server."""

    waited_s: float = 0.0
    refusals: int = 0


def read_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for, None when absent or unreadable.

    Both forms of the standard count, seconds and an HTTP date; a date in the past is 0.
    """
    if not value:
        return None
    text = value.strip()
    try:
        asked = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
    return asked if 0 <= asked < 1e9 else None  # NaN and negative numbers say nothing


class Pacer:
    """Hands out slots and spaces requests; for one event loop.

    `concurrency` limits passive requests and shrinks while the server is overloaded;
    `load_concurrency` limits the other classes, whose very point is to press the server.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        load_concurrency: int,
        max_wait_s: float,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the limiters; must run inside the event loop that will use them."""
        self.max_wait_s = max_wait_s
        self._concurrency = concurrency
        self._passive = anyio.CapacityLimiter(concurrency)
        self._load = anyio.CapacityLimiter(load_concurrency)
        self._sleep = sleep
        self._clock = clock
        self._not_before = 0.0
        self._rounds = 0
        self._given_up = False
        self._jitter = random.Random(0)  # noqa: S311 - spreads retries, guards nothing

    @property
    def in_flight(self) -> int:
        """Requests that hold a slot now."""
        return int(self._passive.borrowed_tokens + self._load.borrowed_tokens)

    @property
    def allowed_in_flight(self) -> int:
        """Passive requests that may hold a slot now."""
        return int(self._passive.total_tokens)

    @asynccontextmanager
    async def slot(self, traffic: Traffic) -> AsyncIterator[None]:
        """Wait until the server may be asked again and a slot is free, and hold the slot."""
        limiter = self._passive if traffic is Traffic.PASSIVE else self._load
        borrower = object()
        await limiter.acquire_on_behalf_of(borrower)
        try:
            while (pause := self._not_before - self._clock()) > 0:
                await self._sleep(pause)
            yield
        finally:
            limiter.release_on_behalf_of(borrower)

    def succeeded(self) -> None:
        """Note that the server took a request: widen again, one step at a time."""
        self._given_up = False
        self._rounds = 0
        if self._passive.total_tokens < self._concurrency:
            self._passive.total_tokens += 1

    def halve(self) -> None:
        """Allow half as many passive requests in flight, at least one."""
        self._passive.total_tokens = max(1, int(self._passive.total_tokens) // 2)

    async def back_off(self, waiting: Waiting, *, asked_s: float | None, seen: str) -> None:
        """Wait after a 429 or 503: as long as Retry-After asks, else exponentially.

        The exponent counts rounds of refusals since the server last took a request, not the
        refusals of one request: what is refused together is one round, and a success starts anew.
        Once one request has spent its whole wait in vain, the others fail at their first refusal,
        until the server takes a request again: a dead server must not cost the cap n times.

        Raises:
            Overloaded: the wait would pass the cap; `seen` says what the server answered.
        """
        self.halve()
        if self._clock() >= self._not_before:
            self._rounds += 1
        backoff = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(16, max(0, self._rounds - 1)))
        pause = backoff * self._jitter.uniform(0.75, 1.25) if asked_s is None else asked_s
        waiting.refusals += 1
        if self._given_up or waiting.waited_s + pause > self.max_wait_s:
            self._given_up = True
            asks = "" if asked_s is None else f", and asks to wait {asked_s:.0f} s"
            raise Overloaded(
                f"{seen} {waiting.refusals} times within {waiting.waited_s:.0f} s{asks}; the cap on"
                f" waiting is {self.max_wait_s:.0f} s: raise --fidelity-max-wait-s or come back"
            )
        self._not_before = max(self._not_before, self._clock() + pause)
        waiting.waited_s += pause
        await self._sleep(pause)
