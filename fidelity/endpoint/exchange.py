"""One request and its answer, sent once: streamed or whole, finished or aborted by us."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import anyio

from fidelity.config.redaction import Redactor
from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.outgoing import Outgoing, Refused, Stopwatch
from fidelity.endpoint.replies import Reply
from fidelity.endpoint.reply_draft import Draft
from fidelity.endpoint.request_body import Question
from fidelity.endpoint.statuses import BUSY, message_of, not_json, trouble
from fidelity.endpoint.stream_reader import StreamReader, add_to
from fidelity.endpoint.timeouts import Timeouts
from fidelity.endpoint.transport import Incoming, Transport
from fidelity.errors import EndpointError
from fidelity.records import ToolCall

_MAX_ERROR_BYTES = 1 << 20
_MAX_WHOLE_BYTES = 256 << 20


class Exchanger:
    """Runs exchanges over a transport."""

    def __init__(
        self,
        transport: Transport,
        timeouts: Timeouts,
        replica_headers: tuple[str, ...],
        aborted: set[str],
        abort: Callable[[str], Awaitable[None]],
    ) -> None:
        """Send nothing yet; `abort` calls the server's abort, `aborted` holds the ids it named."""
        self._transport = transport
        self._timeouts = timeouts
        self._replica_headers = tuple(name.lower() for name in replica_headers)
        self._aborted = aborted
        self._abort = abort

    async def run(self, outgoing: Outgoing, question: Question) -> Reply | Refused:
        """Send the request once.

        Raises:
            EndpointError: whatever is not an answer, in one sentence.
        """
        clock, draft = Stopwatch(), Draft()
        after_s = math.inf if question.abort_after_s is None else question.abort_after_s
        try:
            with anyio.move_on_after(after_s):
                return await self._within_time(outgoing, question, clock, draft)
        except TimeoutError:
            raise EndpointError(
                f"POST {outgoing.url} did not end within {clock.elapsed_s:.0f} s"
                f" (prompt of up to {outgoing.prompt_tokens} tokens, max_tokens"
                f" {question.max_tokens}): look at the server's log, or raise --fidelity-timeout-s"
            ) from None
        # our own time was up: the connection is closed by now
        return self._reply(outgoing, question, Incoming(200, {}), clock, draft, aborted=True)

    async def _within_time(
        self,
        outgoing: Outgoing,
        question: Question,
        clock: Stopwatch,
        draft: Draft,
    ) -> Reply | Refused:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if question.streamed else "application/json",
            "X-Request-Id": outgoing.request_id,
        }
        limit = question.timeout_s or self._timeouts.total_s(
            outgoing.prompt_tokens, question.max_tokens
        )
        # a stream owes its headers by the time of its first delta; a whole answer comes at its end
        first = min(limit, self._timeouts.first_s(outgoing.prompt_tokens))
        with anyio.fail_after(first if question.streamed else limit) as scope:
            async with self._transport.stream(
                "POST", outgoing.url, content=outgoing.body, headers=headers
            ) as incoming:
                scope.deadline += limit - first if question.streamed else 0
                if incoming.status != 200:
                    return await self._other_status(outgoing, question, incoming, clock)
                return await self._receive(outgoing, question, incoming, clock, draft)

    async def _receive(
        self,
        outgoing: Outgoing,
        question: Question,
        incoming: Incoming,
        clock: Stopwatch,
        draft: Draft,
    ) -> Reply | Refused:
        content_type = incoming.headers.get("content-type", "")
        raw: dict[str, Any] | None = None
        aborted = False
        # proxies lose the type of a stream; a body that says it is something else is no stream
        is_other = any(word in content_type for word in ("json", "html"))
        if question.streamed and not is_other:
            stream = StreamReader(outgoing, question, incoming, self._timeouts, self._redactor)
            outcome = await stream.read(draft, clock, self._aborter(outgoing, question))
            if isinstance(outcome, Refused):
                return outcome
            aborted = outcome
        else:
            raw = await self._whole(outgoing, incoming, content_type)
            add_to(draft, raw, outgoing, self._redactor)
        aborted = aborted or outgoing.request_id in self._aborted
        self._check_finish(draft, outgoing, aborted=aborted)
        return self._reply(outgoing, question, incoming, clock, draft, aborted=aborted, raw=raw)

    @property
    def _redactor(self) -> Redactor:
        return self._transport.redactor

    def _aborter(self, outgoing: Outgoing, question: Question) -> Callable[[], Awaitable[bool]]:
        """Return what stops the stream; its result says whether to close the connection."""

        async def stop() -> bool:
            if not question.abort_by_call:
                return True
            await self._abort(outgoing.request_id)
            return False

        return stop

    async def _other_status(
        self, outgoing: Outgoing, question: Question, incoming: Incoming, clock: Stopwatch
    ) -> Reply | Refused:
        body = await _collect(incoming.chunks, _MAX_ERROR_BYTES)
        if incoming.status in question.allow_status:
            try:
                raw = shape.mapping(shape.parse(body), "the body")
            except shape.Malformed:
                raw = {"error": {"message": message_of(body)}}
            return self._reply(outgoing, question, incoming, clock, Draft(), aborted=False, raw=raw)
        if incoming.status in BUSY:
            return Refused.of(incoming.status, incoming.headers, body, self._redactor)
        content_type = incoming.headers.get("content-type", "")
        raise trouble(outgoing.asked, incoming.status, content_type, body, self._redactor)

    async def _whole(
        self, outgoing: Outgoing, incoming: Incoming, content_type: str
    ) -> dict[str, Any]:
        body = await _collect(incoming.chunks, _MAX_WHOLE_BYTES)
        try:
            raw = shape.mapping(shape.parse(body), "the body")
        except shape.Malformed as error:
            raise not_json(outgoing.asked, content_type, body, error, self._redactor) from error
        if "choices" not in raw:
            missing = shape.Malformed(f"no choices, but {message_of(body)!r}")
            raise not_json(outgoing.asked, content_type, body, missing, self._redactor)
        return raw

    def _check_finish(self, draft: Draft, outgoing: Outgoing, *, aborted: bool) -> None:
        if draft.finish_reason in {"abort", "error"} and not aborted:
            raise EndpointError(
                f"POST {outgoing.url}: the server itself ended the answer with finish_reason"
                f" {draft.finish_reason!r} after {draft.chunks} chunks: look at its log"
            )

    def _reply(
        self,
        outgoing: Outgoing,
        question: Question,
        incoming: Incoming,
        clock: Stopwatch,
        draft: Draft,
        *,
        aborted: bool,
        raw: dict[str, Any] | None = None,
    ) -> Reply:
        try:
            text, reasoning = draft.texts(inline_think=outgoing.inline_think)
            calls = draft.tool_calls()
        except shape.Malformed as error:
            raise not_json(outgoing.asked, "", b"", error, self._redactor) from error
        clean = self._redactor
        return Reply(
            request_id=outgoing.request_id,
            path=question.path,
            status=incoming.status,
            started_at=clock.started_at,
            text=clean.text(text),
            reasoning=clean.text(reasoning),
            tool_calls=tuple(
                ToolCall(
                    id=clean.text(c.id), name=clean.text(c.name), arguments=clean.text(c.arguments)
                )
                for c in calls
            ),
            finish_reason=clean.text(draft.finish_reason)[:100],
            token_ids=_frozen(draft.token_ids),
            prompt_token_ids=_frozen(draft.prompt_token_ids),
            logprobs=_frozen(draft.logprobs),
            prompt_logprobs=_frozen(draft.prompt_logprobs),
            ttft_s=clock.ttft_s,
            e2e_s=clock.elapsed_s,
            aborted=aborted,
            replica=self._replica(incoming.headers),
            headers=incoming.headers,
            chunks=draft.chunks,
            raw=clean.json(raw) if raw is not None else None,
            prompt_tokens=draft.usage.get("prompt_tokens"),
            cached_tokens=draft.usage.get("cached_tokens"),
            completion_tokens=draft.usage.get("completion_tokens"),
            reasoning_tokens=draft.usage.get("reasoning_tokens"),
        )

    def _replica(self, headers: Mapping[str, str]) -> str:
        return next((headers[name][:100] for name in self._replica_headers if name in headers), "")


async def _collect(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


def _frozen(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
