"""A probe: one question whose right answer is known, and the script that asks it.

A script speaks to the deployment through an `Ask`, which keeps each exchange as evidence. It
returns a `ProbeResult`; infrastructure trouble leaves it as an `EndpointError`, never as a score.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fidelity.errors import EndpointError
from fidelity.records import Exchange, ToolCall
from fidelity.words import Score, Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.endpoint.client import Client
    from fidelity.endpoint.replies import RawReply, Reply

EXCERPT_CHARS = 2_000
HISTORY_CHARS = 6_000
"""Of one exchange's messages together: a journal line stays a few kilobytes whatever was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What one execution of a probe found out.

    `cell` holds axes as they were really measured (exact token counts); it is laid over the
    probe's own. `ok` is None when the trial says nothing about the claim, and `error` then says
    why in one sentence (an answer cut inside its reasoning, a token count that does not add up).
    """

    ok: bool | None
    score: Score | None = None
    value: float | None = None
    lost: str = ""
    error: str = ""
    cell: Mapping[str, str | int | float] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    """Paths that this trial proves: "cold", "cached", "aborted", ..."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Figures behind the score, as JSON, bounded."""


Script = Callable[["Ask"], Awaitable[ProbeResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One conversation to hold with a deployment, and what must come of it.

    Attributes:
        family: what kind of question, e.g. "needle".
        key: unique inside one claim, arm and stage; resume finds the trial by it.
        cell: the planned axes of the sweep.
        recipe: builder name and arguments; with the run's seed it rebuilds the prompt.
        cluster: probes of one cluster share a haystack and are not independent; "" is its own.
        cost_tokens: prompt tokens that the server will have to prefill, as planned.
        cost_requests: requests that the script sends.
        traffic: the highest traffic class of any of them.
    """

    family: str
    key: str
    script: Script
    cell: Mapping[str, str | int | float] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    expected: str = ""
    cluster: str = ""
    cost_tokens: int = 0
    cost_requests: int = 1
    traffic: Traffic = Traffic.PASSIVE


class Ask:
    """The client as one probe sees it: every chat and completion is kept as an `Exchange`.

    Not for use by two tasks of one probe that need a fixed order of exchanges: they are kept in
    the order in which they ended.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.exchanges: list[Exchange] = []

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], *, label: str = "", **options: Any
    ) -> Reply:
        """Send one chat request; see `Client.chat` for the options and the errors."""
        try:
            reply = await self.client.chat(messages, **options)
        except EndpointError as error:
            self._keep_error("/chat/completions", label, messages, error)
            raise
        self.keep(reply, label=label, messages=messages)
        return reply

    async def complete(
        self, prompt: str | Sequence[int], *, label: str = "", **options: Any
    ) -> Reply:
        """Send one completion request; see `Client.complete` for the options and the errors."""
        shown = ({"role": "prompt", "content": prompt if isinstance(prompt, str) else "token ids"},)
        try:
            reply = await self.client.complete(prompt, **options)
        except EndpointError as error:
            self._keep_error("/completions", label, shown, error)
            raise
        self.keep(reply, label=label, messages=shown)
        return reply

    async def raw(
        self,
        method: str,
        path: str,
        content: bytes | Mapping[str, Any] | None = None,
        *,
        label: str = "",
        **options: Any,
    ) -> RawReply:
        """Send what the caller wrote, keep an excerpt of what came back; see `Client.raw`."""
        reply = await self.client.raw(method, path, content, **options)
        sent = content if isinstance(content, bytes) else str(content or "").encode()
        self.exchanges.append(
            Exchange(
                request_id=reply.request_id,
                path=path,
                status=reply.status,
                label=label,
                messages=({"role": "body", "content": excerpt(sent.decode(errors="replace"))},),
                text=excerpt(reply.body.decode(errors="replace")),
            )
        )
        return reply

    def keep(self, reply: Reply, *, label: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Add a reply to the evidence of this trial."""
        self.exchanges.append(exchange_of(reply, label=label, messages=messages))

    def _keep_error(
        self,
        path: str,
        label: str,
        messages: Sequence[Mapping[str, Any]],
        error: EndpointError,
    ) -> None:
        self.exchanges.append(
            Exchange(
                request_id="",
                path=path,
                label=label,
                messages=excerpt_messages(messages),
                error=excerpt(str(error), 500),
            )
        )


def exchange_of(reply: Reply, *, label: str, messages: Sequence[Mapping[str, Any]]) -> Exchange:
    """Return the bounded record of one reply."""
    return Exchange(
        request_id=reply.request_id,
        path=reply.path,
        status=reply.status,
        replica=reply.replica or "",
        label=label,
        messages=excerpt_messages(messages),
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        completion_tokens=reply.completion_tokens,
        reasoning_tokens=reply.reasoning_tokens,
        finish_reason=reply.finish_reason or "",
        text=excerpt(reply.text),
        reasoning=excerpt(reply.reasoning),
        tool_calls=tuple(
            ToolCall(
                name=excerpt(call.name, 200), arguments=excerpt(call.arguments, 500), id=call.id
            )
            for call in reply.tool_calls
        ),
        aborted=reply.aborted,
        ttft_s=reply.ttft_s,
        e2e_s=reply.e2e_s,
    )


def aborted_exchange(
    request_id: str, *, label: str, messages: Sequence[Mapping[str, Any]]
) -> Exchange:
    """Return the record of a request that we left before anything came back."""
    return Exchange(
        request_id=request_id,
        path="/chat/completions",
        label=label,
        messages=excerpt_messages(messages),
        aborted=True,
    )


def excerpt(text: str, limit: int = EXCERPT_CHARS) -> str:
    """Return `text`, or its head and tail around a note of how much was cut."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]} ... [{len(text) - head - tail} characters] ... {text[-tail:]}"


def excerpt_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return what was sent, each text cut so that all together stay a few kilobytes."""
    limit = max(120, HISTORY_CHARS // max(1, len(messages)))
    kept = [_excerpt_message(message, limit) for message in messages]
    if len(kept) > 40:  # a long conversation is shown by its two ends
        gap = {"role": "note", "content": f"... {len(kept) - 40} messages ..."}
        kept = [*kept[:20], gap, *kept[-20:]]
    return tuple(kept)


def _excerpt_message(message: Mapping[str, Any], limit: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in message.items():
        if isinstance(value, str):
            shown[name] = excerpt(value, limit)
        elif isinstance(value, list | tuple | dict):
            shown[name] = excerpt(str(value), limit)
        else:
            shown[name] = value
    return shown
