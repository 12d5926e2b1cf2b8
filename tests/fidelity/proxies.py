"""Real proxies to stand in front of a real server: each does one thing that production does.

Used as context managers; `base_url` is what the harness is given. A client that closes its
connection closes the proxy's own to the server, so that aborts reach it.
"""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx
from tiny_http import Connection, Request, TinyServer

from fidelity.config.settings import resolve
from fidelity.deployment.launch import launch
from fidelity.endpoint.sse import SseParser

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"}


class RecordingProxy(TinyServer):
    """Forwards everything and keeps every request."""

    def __init__(self, root_url: str) -> None:
        super().__init__()
        self.root = root_url.removesuffix("/").removesuffix("/v1")
        self.answering: set[int] = set()
        self.most_in_flight = 0
        self.statuses: list[int] = []

    async def opened(self) -> None:
        self.http = httpx.AsyncClient(timeout=httpx.Timeout(300), trust_env=False)

    async def closing(self) -> None:
        await self.http.aclose()

    @property
    def generations(self) -> list[Request]:
        return [r for r in self.requests if r.path.endswith("completions")]

    def paths(self) -> list[str]:
        return [r.path.split("?")[0] for r in self.requests]

    async def handle(self, request: Request, connection: Connection) -> None:
        if request.path.endswith("completions"):
            self.answering.add(id(connection))
            self.most_in_flight = max(self.most_in_flight, len(self.answering))
        try:
            if not await self.answered(request, connection):
                await self.forward(self.root, request, connection)
        finally:
            self.over(connection)

    def over(self, connection: Connection) -> None:
        """Take an answer for ended: before its last bytes go, for the next may follow at once."""
        self.answering.discard(id(connection))

    async def answered(self, request: Request, connection: Connection) -> bool:
        """Answer instead of the server; False forwards."""
        return False

    def more_headers(self, request: Request) -> dict[str, str]:
        return {}

    async def forward(self, root: str, request: Request, connection: Connection) -> None:
        headers = {k: v for k, v in request.headers.items() if k not in {"host", *_HOP_BY_HOP}}
        async with self.http.stream(
            request.method, root + request.path, headers=headers, content=request.body
        ) as response:
            self.statuses.append(response.status_code)
            kept = {k: v for k, v in response.headers.items() if k not in _HOP_BY_HOP}
            kept |= self.more_headers(request)
            if "text/event-stream" in response.headers.get("content-type", ""):
                await connection.start(response.status_code, kept)
                await self.relay(response, connection)
                await connection.end()
            else:
                body = await response.aread()
                if response.status_code == 200 and request.path.endswith("completions"):
                    body = json.dumps(self.whole(json.loads(body))).encode()
                self.over(connection)
                await connection.respond(response.status_code, body, kept)

    async def relay(self, response: httpx.Response, connection: Connection) -> None:
        async for chunk in response.aiter_bytes():
            if b"[DONE]" in chunk:
                self.over(connection)
            await connection.send(chunk)

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """Rewrite an answer in one piece."""
        return body


class _EventProxy(RecordingProxy):
    """Takes streams apart into events and sends what `rewrite` makes of them."""

    def rewrite(self, event: dict[str, Any], held: list[dict[str, Any]]) -> list[dict[str, Any]]:
        raise NotImplementedError

    async def relay(self, response: httpx.Response, connection: Connection) -> None:
        parser = SseParser()
        held: list[dict[str, Any]] = []
        async for chunk in response.aiter_bytes():
            for event in parser.feed(chunk):
                if event.data == "[DONE]":
                    for left in held:
                        await connection.event(left)
                    await connection.event("[DONE]")
                    return
                for made in self.rewrite(json.loads(event.data), held):
                    await connection.event(made)


def _is_plain_delta(event: dict[str, Any]) -> bool:
    choices = event.get("choices")
    return bool(choices) and choices[0].get("finish_reason") is None and not event.get("usage")


class ChunkMergingProxy(_EventProxy):
    """Sends `size` deltas of the server as one: a chunk is not a token."""

    def __init__(self, root_url: str, size: int = 5) -> None:
        super().__init__(root_url)
        self.size = size

    def rewrite(self, event: dict[str, Any], held: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not _is_plain_delta(event):
            ready = [*held, event]
            held.clear()
            return ready
        if held:
            _merge(held[0], event)
            held[0]["merged"] += 1
        else:
            held.append(event | {"merged": 1})
        if held[0]["merged"] < self.size:
            return []
        return [held.pop()]


def _merge(into: dict[str, Any], event: dict[str, Any]) -> None:
    target, source = into["choices"][0], event["choices"][0]
    if "text" in source:
        target["text"] = (target.get("text") or "") + (source["text"] or "")
    delta = target.setdefault("delta", {})
    for key, value in (source.get("delta") or {}).items():
        joins = isinstance(value, str | list) and key != "role"
        delta[key] = (delta.get(key) or type(value)()) + value if joins else value
    if source.get("logprobs"):
        target["logprobs"] = _joined(target.get("logprobs") or {}, source["logprobs"])
    target |= _joined(target, {key: v for key, v in source.items() if key == "token_ids" and v})


def _joined(held: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Lists one behind the other: entries of a chat, parallel arrays of a completion, token ids."""
    lists = {key: (held.get(key) or []) + v for key, v in more.items() if isinstance(v, list)}
    return {**more, **held, **lists}


class ThinkOnlyProxy(_EventProxy):
    """Everything that the model says becomes reasoning, and the token budget is spent on it."""

    def rewrite(self, event: dict[str, Any], held: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for choice in event.get("choices") or ():
            self._turn(choice.get("delta"))
            if choice.get("finish_reason"):
                choice["finish_reason"] = "length"
        return [event]

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        for choice in body["choices"]:
            self._turn(choice.get("message"))
            choice["finish_reason"] = "length"
        return body

    def _turn(self, message: dict[str, Any] | None) -> None:
        if message and message.get("content"):
            said = (message.get("reasoning_content") or "") + message["content"]
            message["reasoning_content"] = said
            message["content"] = ""


class RateLimitingProxy(RecordingProxy):
    """Takes one generation in `interval_s` and answers the others 429."""

    def __init__(
        self, root_url: str, *, interval_s: float = 0.1, retry_after: str | None = None
    ) -> None:
        super().__init__(root_url)
        self.interval_s = interval_s
        self.retry_after = retry_after
        self.refused = 0
        self._next = 0.0

    async def answered(self, request: Request, connection: Connection) -> bool:
        if not request.path.endswith("completions"):
            return False
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self.interval_s
            return False
        self.refused += 1
        headers = {"retry-after": self.retry_after} if self.retry_after else {}
        said = {"error": {"message": "Rate limit reached", "type": "rate_limit", "code": 429}}
        await connection.respond(429, said, headers)
        return True


class RoundRobinProxy(RecordingProxy):
    """Sends requests to several servers in turn; `label` adds an x-replica header."""

    def __init__(self, *root_urls: str, label: bool = True) -> None:
        super().__init__(root_urls[0])
        self.roots = [url.removesuffix("/").removesuffix("/v1") for url in root_urls]
        self.label = label
        self.turn = 0

    async def handle(self, request: Request, connection: Connection) -> None:
        replica = self.turn % len(self.roots)
        self.turn += 1
        request.headers["x-chosen"] = str(replica)
        await self.forward(self.roots[replica], request, connection)

    def more_headers(self, request: Request) -> dict[str, str]:
        return {"x-replica": request.headers["x-chosen"]} if self.label else {}


class UpstreamServer:
    """The embedded engine as a real process for the tests of proxies; context manager."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments

    def __enter__(self):
        settings = resolve({"deployment": "embedded"}, environ=_child_environ())

        async def start():
            return await launch(
                settings.target,
                extra=self.arguments,
                environ=settings.environ,
                log_path=None,
                redactor=settings.redactor,
            )

        with ThreadPoolExecutor(1) as pool:  # the caller may run an event loop of its own
            self.process = pool.submit(anyio.run, start).result()
        self.root_url = self.process.command.root_url
        self.base_url = f"{self.root_url}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()


def _child_environ() -> dict[str, str]:
    names = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in names if name in os.environ}
