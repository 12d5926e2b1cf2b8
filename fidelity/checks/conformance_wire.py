"""HTTP exchanges as conformance checks see them: the very bytes, and what can be read from them.

A request goes out once per run: checks that look at the same exchange share it. A server that is
busy is waited for; one that fails (5xx), or refuses the key, is trouble and no answer. A 500 that
comes again, while plain requests are answered, is an answer after all: it belongs to that request.
"""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from fidelity.checks.conformance_stream import Stream, read_stream
from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.outgoing import Refused as Busy
from fidelity.endpoint.pacing import Waiting
from fidelity.endpoint.replies import RawReply
from fidelity.endpoint.reply_draft import Draft
from fidelity.endpoint.request_body import Question, build
from fidelity.endpoint.statuses import BUSY, Asked, message_of, trouble
from fidelity.errors import ConnectionCut, EndpointError
from fidelity.probes.probe import excerpt, excerpt_messages
from fidelity.records import Exchange
from fidelity.words import Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from fidelity.endpoint.client import Client
    from fidelity.probes.probe import Ask

_NO_ANSWER = frozenset({401, 403})
ITS_OWN_FAILURE = frozenset({500, 501})
"""Of the server's own code; gateways in front of it say 502, 503, 504 and more."""
_PER_BYTE = 0.5
"""Tokens reserved for a byte of a request: more than any prompt of these checks takes."""


class Undecided(Exception):
    """The exchange says nothing about the claim; the message says why."""


class Unsupported(Exception):
    """The server refuses in words what the claim is about."""


class Refused(Unsupported):
    """The server refuses the request of a claim; `wire` is the exchange."""

    def __init__(self, sentence: str, wire: Wire) -> None:
        super().__init__(sentence)
        self.wire = wire


class Failed(EndpointError):
    """The server answered 500 or cut the connection; trouble, unless the request is to blame.

    `wire` is the exchange, its status 0 where the connection was cut.
    """

    def __init__(self, sentence: str, wire: Wire) -> None:
        super().__init__(sentence)
        self.wire = wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One request and the bytes that came back.

    Attributes:
        label: what the request is for.
        sent: its body as JSON; {} where it was no JSON.
        raw_sent: its body where it was no JSON.
        facts: what the harness found out beside, e.g. counted tokens.
    """

    label: str
    path: str
    sent: Mapping[str, Any] = field(default_factory=dict)
    raw_sent: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    request_id: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def streamed(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.sent.get("stream"))

    @property
    def stream(self) -> Stream:
        """The body as an event stream, with every breach of its form."""
        return read_stream(self.body)

    @property
    def said(self) -> str:
        """The error message of a refusal."""
        return message_of(self.body)

    def json(self) -> dict[str, Any]:
        """Return the body as an object.

        Raises:
            json_shape.Malformed: it is none.
        """
        return shape.mapping(shape.parse(self.body), "the body")

    def events(self) -> list[dict[str, Any]]:
        """Return the whole answer as a list of bodies: one, or those of the stream's events."""
        if not self.streamed:
            return [self.json()]
        return [shape.mapping(shape.parse(text), "an event") for text in self.stream.data]

    def choice(self) -> dict[str, Any]:
        """Return the first choice of a one-shot answer; {} where there is none."""
        choices = shape.sequence(self.json().get("choices"), "choices")
        return shape.mapping(choices[0], "choices[0]") if choices else {}

    def message(self) -> dict[str, Any]:
        """Return the message of a one-shot answer."""
        return shape.mapping(self.choice().get("message"), "message")

    def answer(self) -> Draft:
        """Return the answer, merged from its deltas where it was streamed.

        Raises:
            Refused: the request was refused.
            json_shape.Malformed: the body is of another shape.
        """
        if self.status != 200:
            raise Refused(f"{self.label}: refused with {self.status} ({self.said!r})", self)
        draft = Draft()
        for body in self.events():
            draft.add(body)
        return draft

    def with_json(self, body: Mapping[str, Any]) -> Wire:
        """Return the same exchange with another one-shot body: for controls."""
        return replace(self, body=json.dumps(body).encode())

    def with_events(self, events: Sequence[str]) -> Wire:
        """Return the same exchange with other stream data: for controls."""
        text = "".join(f"data: {event}\n\n" for event in events)
        return replace(self, body=text.encode())

    @property
    def tokens(self) -> int | None:
        """Of prompt and answer, as usage tells them; None where it does not."""
        usage = self._readable().usage
        prompt, answer = usage.get("prompt_tokens"), usage.get("completion_tokens")
        return None if prompt is None else prompt + (answer or 0)

    def exchange(self) -> Exchange:
        """Return the bounded record: the request whole enough to send it again by hand."""
        messages = self.sent.get("messages")
        rest = {k: v for k, v in self.sent.items() if k != "messages"}
        asked = self.raw_sent or json.dumps(rest, ensure_ascii=False)
        held = [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
        answer = {"role": "raw answer", "content": self.body.decode(errors="replace")}
        draft = self._readable()
        return Exchange(
            request_id=self.request_id,
            path=self.path,
            label=self.label,
            status=self.status,
            messages=excerpt_messages([{"role": "request", "content": asked}, *held, answer]),
            text=excerpt("".join(draft.text)),
            reasoning=excerpt("".join(draft.reasoning)),
            finish_reason=draft.finish_reason[:100],
            prompt_tokens=draft.usage.get("prompt_tokens"),
            cached_tokens=draft.usage.get("cached_tokens"),
            completion_tokens=draft.usage.get("completion_tokens"),
        )

    def _readable(self) -> Draft:
        try:
            return self.answer()
        except (shape.Malformed, Unsupported):
            return Draft()


class Line:
    """Sends the requests of one check and keeps each as evidence of its trial."""

    def __init__(self, ask: Ask, *, traffic: Traffic = Traffic.PASSIVE) -> None:
        self._ask = ask
        self.client: Client = ask.client
        self._traffic = traffic
        self._book = _books.setdefault(self.client, {})
        self._shared: list[Wire] = []

    async def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Wire:
        """Send a chat; options as in `Question`, and `label`, `copy`, `without`."""
        return await self._question(Question(prompt=messages, chat=True, **_kept(options)), options)

    async def complete(self, prompt: str | Sequence[int], **options: Any) -> Wire:
        """Send a completion; options as for `chat`."""
        return await self._question(Question(prompt=prompt, chat=False, **_kept(options)), options)

    async def _question(self, question: Question, options: Mapping[str, Any]) -> Wire:
        server = self.client.server
        body = json.loads(
            build(
                question,
                model=server.model,
                request_id="",
                profile=self.client.profile,
                dialect=server.dialect,
                quirks=server.quirks,
            )
        )
        if server.dialect.request_id_field:
            body.pop(server.dialect.request_id_field, None)
        for name in options.get("without", ()):
            body.pop(name, None)
        label = str(options.get("label", "ask"))
        name = json.dumps([question.path, body, options.get("copy", 0)], sort_keys=True)
        return await self._once(
            name,
            lambda: self._send(question.path, label=label, sent=body, tokens=question.max_tokens),
        )

    async def post(
        self,
        path: str,
        content: bytes,
        *,
        label: str,
        tokens: int = 0,
        method: str = "POST",
        kind: str | None = None,
    ) -> Wire:
        """Send bytes as they are; any status is an answer, and 0 a connection that was cut.

        `kind` is another content type than JSON's. Whether the server is there at all, the request
        that follows must show.
        """

        async def send() -> Wire:
            try:
                return await self._send(
                    path,
                    label=label,
                    method=method,
                    content=content,
                    tokens=tokens,
                    any_status=True,
                    headers={"Content-Type": kind} if kind else None,
                )
            except EndpointError as error:
                raw, said = content.decode(errors="replace"), str(error).encode()
                return Wire(label=label, path=path, raw_sent=raw, status=0, body=said)

        return await self._once(f"{path} {label}", send)

    async def get(self, path: str, *, label: str, copy: int = 0) -> Wire:
        """Get a path below the base URL; any status is an answer."""
        return await self._once(
            f"GET {path} {copy}", lambda: self._send(path, label=label, method="GET")
        )

    def note(self, label: str, **facts: Any) -> Wire:
        """Return what was found out otherwise, for the judge, in the place of an exchange."""
        return Wire(label=label, path="", facts=facts)

    async def _once(self, name: str, send: Callable[[], Awaitable[Wire]]) -> Wire:
        name = f"{self.client.epochs.epoch} {name}"
        found = self._book.get(name)
        if found is None:
            found = self._book[name] = await send()
            self._ask.exchanges.append(found.exchange())
        else:
            self._shared.append(found)
        return found

    def show_shared(self) -> None:
        """Add the exchanges that other claims sent to the evidence, without counting them twice."""
        for wire in self._shared:
            shown = wire.exchange()
            self._ask.exchanges.append(
                msgspec.structs.replace(
                    shown,
                    label=f"{shown.label} (sent once for several claims)",
                    prompt_tokens=None,
                    cached_tokens=None,
                    completion_tokens=None,
                )
            )

    async def _send(
        self,
        path: str,
        *,
        label: str,
        method: str = "POST",
        sent: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        tokens: int = 0,
        any_status: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Wire:
        client, waiting = self.client, Waiting()
        body = content if sent is None else json.dumps(sent, ensure_ascii=False).encode()
        reserved = tokens + int(_PER_BYTE * len(body or b""))
        while True:
            try:
                reply = await client.raw(
                    method,
                    path,
                    body,
                    headers,
                    traffic=self._traffic,
                    tokens=reserved,
                    timeout_s=client.timeouts.total_s(len(body or b""), tokens),
                )
            except ConnectionCut as cut:
                if any_status:
                    raise
                nothing = RawReply(status=0, headers={}, body=str(cut).encode(), request_id="")
                lost = _wire_of(label, path, sent, content, nothing)
                raise Failed(str(cut), lost) from cut
            if reply.status not in BUSY or self._traffic is Traffic.LOAD:
                break
            busy = Busy.of(reply.status, reply.headers, reply.body, client.transport.redactor)
            seen = f"{method} {path} answered {reply.status} ({busy.said!r})"
            await client.pacer.back_off(waiting, asked_s=busy.retry_after_s, seen=seen)
        failed = reply.status in _NO_ANSWER or (reply.status >= 500 and not any_status)
        if failed and reply.status not in BUSY:
            asked = Asked(
                method=method, url=f"{client.transport.base_url}{path}", model=client.server.model
            )
            kind = reply.headers.get("content-type", "")
            failure = trouble(asked, reply.status, kind, reply.body, client.transport.redactor)
            if reply.status not in ITS_OWN_FAILURE:
                raise failure
            raise Failed(str(failure), _wire_of(label, path, sent, content, reply))
        wire = _wire_of(label, path, sent, content, reply)
        told = 0 if 400 <= wire.status < 500 else wire.tokens  # a refusal computes nothing
        if told is not None:
            client.caps.correct(reserved, told)
        return wire

    async def resend(self, wire: Wire) -> Wire:
        """Send the very same request again; any status is an answer, and so is 0, a cut.

        Both exchanges go into the evidence.
        """
        try:
            again = await self._send(
                wire.path,
                label=f"{wire.label}, once more",
                sent=wire.sent or None,
                content=wire.raw_sent.encode() if wire.raw_sent else None,
                any_status=True,
            )
        except ConnectionCut as cut:
            again = replace(wire, label=f"{wire.label}, once more", body=str(cut).encode())
            again = replace(again, status=0)
        self._ask.exchanges += [wire.exchange(), again.exchange()]
        return again


def _wire_of(
    label: str, path: str, sent: Mapping[str, Any] | None, content: bytes | None, reply: RawReply
) -> Wire:
    return Wire(
        label=label,
        path=path,
        sent=dict(sent or {}),
        raw_sent="" if content is None else content.decode(errors="replace"),
        status=reply.status,
        headers=reply.headers,
        body=reply.body,
        request_id=reply.request_id,
    )


_books: weakref.WeakKeyDictionary[Client, dict[str, Wire]] = weakref.WeakKeyDictionary()


async def together(*calls: Awaitable[Wire]) -> list[Wire]:
    """Send several requests at once; return their exchanges in order.

    Raises:
        EndpointError: the first trouble of any.
    """
    found: list[Wire | None] = [None] * len(calls)
    troubles: list[EndpointError] = []

    async def one(index: int, call: Awaitable[Wire]) -> None:
        try:
            found[index] = await call
        except EndpointError as error:
            troubles.append(error)

    async with anyio.create_task_group() as tasks:
        for index, call in enumerate(calls):
            tasks.start_soon(one, index, call)
    if troubles:
        raise troubles[0]
    return [wire for wire in found if wire is not None]


def _kept(options: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k not in {"label", "copy", "without"}}
