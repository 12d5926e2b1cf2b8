"""Server-sent events, and work that ends when its client goes away."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):
    """The client closed its connection."""


def event(data: object) -> bytes:
    """One event holding one JSON value."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


T = TypeVar("T")


async def unless_client_leaves(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; cancel it the moment the client disconnects. The body must have been read.

    Raises: ClientGone: the client left first.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A response whose events end with the client: then the iterator is closed at once."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str],
        *,
        closing: Callable[[], None],
    ) -> None:
        """`closing` is called once the stream is over, also where it never began."""
        self._events = events
        self._closing = closing
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events."""
        del scope
        try:
            await unless_client_leaves(receive, self._send(send))
        except ClientGone:
            return
        finally:
            self._closing()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            async for chunk in self._events:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            await self._events.aclose()  # cancelled in `send`: do not wait for the collector
        await send({"type": "http.response.body", "body": b"", "more_body": False})
