"""The client's transport to a healthy server, with one fault in what is asked or what is told.

What the healthy server said is kept, so that many faults cost one pass over it.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fidelity.endpoint.transport import Answer, Transport


@dataclass
class Told:
    status: int
    kind: str
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def leave(path, asked, told):
    return told


def as_asked(path, asked):
    return asked


@dataclass(frozen=True)
class Fault:
    """`ask` changes the JSON that goes to the server, `tell` what comes back."""

    name: str
    red: frozenset[str]
    ask: Callable = as_asked
    tell: Callable = leave


@dataclass
class Upstream:
    """A healthy server and what it said; the n-th of equal requests has an answer of its own."""

    root_url: str
    kept: dict[tuple, Told] = field(default_factory=dict)


class FaultTransport(Transport):
    def __init__(self, upstream: Upstream, fault: Fault) -> None:
        super().__init__(f"{upstream.root_url}/v1")
        self.upstream, self.fault = upstream, fault
        self.times: Counter = Counter()

    async def fetch(self, method, url, *, content=None, headers=None, timeout_s):
        path = url.removeprefix(self.root_url)
        asked = _json_of(content)
        if asked is not None:
            changed = self.fault.ask(path, asked)
            content = content if changed is asked else json.dumps(changed).encode()
        told = await self._from_upstream(method, path, content, headers, timeout_s)
        told = self.fault.tell(path, asked, told)
        return Answer(told.status, {"content-type": told.kind}, told.body)

    async def _from_upstream(self, method, path, content, headers, timeout_s):
        name = (method, path, content, (headers or {}).get("Content-Type"))
        self.times[name] += 1
        key = (*name, self.times[name])
        if key not in self.upstream.kept:
            url = f"{self.root_url}{path}"
            answer = await super().fetch(
                method, url, content=content, headers=headers, timeout_s=timeout_s
            )
            kind = answer.headers.get("content-type", "")
            self.upstream.kept[key] = Told(answer.status, kind, answer.body)
        return self.upstream.kept[key]


def _json_of(content):
    try:
        asked = json.loads(content or b"")
    except (ValueError, RecursionError):
        return None
    return asked if isinstance(asked, dict) else None


def events_of(told: Told) -> list[str]:
    return [e.removeprefix("data: ") for e in told.body.decode().split("\n\n") if e.strip()]


def streamed(events: list[str], told: Told) -> Told:
    body = "".join(f"data: {event}\n\n" for event in events).encode()
    return Told(told.status, told.kind, body)


def is_stream(told: Told) -> bool:
    return told.kind.startswith("text/event-stream")


def each_event(told: Told, edit: Callable[[dict], dict | None]) -> Told:
    """Edit every event's JSON; None drops it."""
    events = []
    for text in events_of(told):
        if text == "[DONE]":
            events.append(text)
        elif (event := edit(json.loads(text))) is not None:
            events.append(json.dumps(event))
    return streamed(events, told)


def one_shot(told: Told, edit: Callable[[dict], None]) -> Told:
    body = told.json
    edit(body)
    return Told(told.status, told.kind, json.dumps(body).encode())
