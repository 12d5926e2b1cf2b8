"""A small real HTTP/1.1 server on a socket, in its own thread, whose handlers may misbehave.

It sees when a client closes its connection, which web frameworks hide.
"""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_at: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


class Connection:
    """What a handler writes to. Everything is written at once, nothing is buffered."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.keep_alive = True

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def respond(
        self,
        status: int,
        body: bytes | dict[str, Any] | list[Any] | str = b"",
        headers: dict[str, str] | None = None,
    ) -> None:
        sent = {"content-type": "application/json"}
        if isinstance(body, dict | list):
            body = json.dumps(body).encode()
        elif isinstance(body, str):
            body = body.encode()
        sent |= {"content-length": str(len(body))} | (headers or {})
        await self.raw(_head(status, sent) + body)

    async def start(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Open a chunked answer."""
        sent = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        await self.raw(_head(status, sent | (headers or {})))

    async def send(self, data: bytes) -> None:
        """Send one HTTP chunk."""
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, body: dict[str, Any] | str) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        await self.send(f"data: {text}\n\n".encode())

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def drop(self) -> None:
        """Close the socket in mid-answer."""
        self.keep_alive = False
        self._writer.close()


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


Handler = Callable[[Request, Connection], Awaitable[None]]


class TinyServer:
    """Context manager; `requests` and `closed_early` fill while it runs."""

    def __init__(self, handler: Handler | None = None) -> None:
        if handler is not None:
            self.handle = handler  # type: ignore[method-assign]
        self.requests: list[Request] = []
        self.closed_early: list[str] = []
        """Paths whose client closed the connection before the handler had ended."""
        self.connections = 0
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def handle(self, request: Request, connection: Connection) -> None:
        raise NotImplementedError

    async def opened(self) -> None:
        """Called in the server's loop before the first request."""

    async def closing(self) -> None:
        """Called in the server's loop after the last request."""

    @property
    def root_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.root_url}/v1"

    def seen(self, path_end: str) -> list[Request]:
        return [r for r in self.requests if r.path.split("?")[0].endswith(path_end)]

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    def __enter__(self):
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10), "the test server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        await self.opened()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 26)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.closing()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = b""
        while True:
            request = await _read_request(reader, ahead)
            if request is None:
                return
            self._note(self.requests, request)
            connection = Connection(writer)
            handler = asyncio.create_task(self._handled(request, connection))
            watch = asyncio.create_task(reader.read(1))
            try:
                await asyncio.wait({handler, watch}, return_when=asyncio.FIRST_COMPLETED)
                if not handler.done() and watch.done() and _is_closed(watch):
                    self._note(self.closed_early, request.path)
                    handler.cancel()
                await asyncio.gather(handler, return_exceptions=True)
                if not connection.keep_alive or handler.cancelled() or handler.exception():
                    return
                ahead = await watch
                if not ahead:
                    return
            finally:
                handler.cancel()
                watch.cancel()
                await asyncio.gather(handler, watch, return_exceptions=True)

    async def _handled(self, request: Request, connection: Connection) -> None:
        await self.handle(request, connection)

    def _note(self, kept: list[Any], value: object) -> None:
        with self._changed:
            kept.append(value)
            self._changed.notify_all()


def _is_closed(watch: asyncio.Task[bytes]) -> bool:
    """Also where the client had not read all when it closed: that resets the connection."""
    return isinstance(watch.exception(), ConnectionError) or watch.result() == b""


async def _read_request(reader: asyncio.StreamReader, ahead: bytes) -> Request | None:
    try:
        head = ahead + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    body = await reader.readexactly(length) if length else b""
    return Request(method, path, headers, body)
