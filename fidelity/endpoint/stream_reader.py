"""Reads one event stream into a draft.

What a stream owes: data within the time-outs, UTF-8, JSON of the documented shape, and an end that
says so ([DONE] or a finish_reason). Less is an EndpointError, never a short answer.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import anyio

from fidelity.config.redaction import Redactor
from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.outgoing import Outgoing, Refused, Stopwatch
from fidelity.endpoint.reply_draft import Draft
from fidelity.endpoint.request_body import Question
from fidelity.endpoint.sse import BrokenStream, SseParser
from fidelity.endpoint.statuses import BUSY, message_of, not_json
from fidelity.endpoint.timeouts import Timeouts
from fidelity.endpoint.transport import Incoming
from fidelity.errors import EndpointError

# a chunk is not a token: it may hold several, and some proxies send single characters
_CHUNKS_PER_TOKEN = 32


class StreamReader:
    """Reads one event stream into a draft."""

    def __init__(
        self,
        outgoing: Outgoing,
        question: Question,
        incoming: Incoming,
        timeouts: Timeouts,
        redactor: Redactor,
    ) -> None:
        """Read nothing yet."""
        self._outgoing = outgoing
        self._question = question
        self._chunks = aiter(incoming.chunks)
        self._timeouts = timeouts
        self._redactor = redactor
        self._parser = SseParser()
        self._done = False

    async def read(
        self, draft: Draft, clock: Stopwatch, stop: Callable[[], Awaitable[bool]]
    ) -> bool | Refused:
        """Return True when we aborted, False at a proper end, Refused when it was not taken.

        Raises:
            EndpointError: silence, broken events, an error inside the stream, or no proper end.
        """
        after = self._question.abort_after_tokens
        stopped = False
        if after == 0:
            stopped = True
            if await stop():
                return True
        async with aclosing(self._events(draft)) as events:
            return await self._follow(events, draft, clock, stop, stopped=stopped)

    async def _follow(
        self,
        events: AsyncIterator[str],
        draft: Draft,
        clock: Stopwatch,
        stop: Callable[[], Awaitable[bool]],
        *,
        stopped: bool,
    ) -> bool | Refused:
        after = self._question.abort_after_tokens
        async for event in events:
            body = self._body(event, draft)
            if isinstance(body, Refused):
                return body
            carried = add_to(draft, body, self._outgoing, self._redactor)
            if carried:
                clock.first()
            if draft.chunks > _CHUNKS_PER_TOKEN * self._question.max_tokens + 1024:
                raise self._broken(f"{draft.chunks} chunks for max_tokens and no end")
            if after is not None and not stopped and draft.chunks >= after:
                stopped = True
                if await stop():
                    return True
        if not self._done and not draft.finish_reason and not stopped:
            raise self._broken(
                f"the stream ended after {draft.chunks} chunks without [DONE] or a finish_reason"
            )
        return stopped

    async def _events(self, draft: Draft) -> AsyncGenerator[str, None]:
        """Yield the data of each event until [DONE] or the end of the stream.

        Only data counts against silence: a heartbeat of comments may not hide a stuck server.
        """
        quiet_since = time.monotonic()
        while True:
            limit = (
                self._timeouts.idle_s
                if draft.chunks
                else self._timeouts.first_s(self._outgoing.prompt_tokens)
            )
            chunk = await self._next_chunk(limit - (time.monotonic() - quiet_since), limit, draft)
            try:
                events = self._parser.close() if chunk is None else self._parser.feed(chunk)
            except BrokenStream as error:
                raise self._broken(str(error)) from error
            for event in events:
                if event.data.strip() == "[DONE]":
                    self._done = True
                    return
                quiet_since = time.monotonic()
                yield event.data
            if chunk is None:
                return

    async def _next_chunk(self, left_s: float, limit_s: float, draft: Draft) -> bytes | None:
        try:
            with anyio.fail_after(max(0.001, left_s)):
                return await anext(self._chunks, None)
        except TimeoutError:
            raise self._broken(f"silent for {limit_s:.0f} s after {draft.chunks} chunks") from None

    def _body(self, data: str, draft: Draft) -> dict[str, Any] | Refused:
        try:
            body = shape.mapping(shape.parse(data), "an event")
        except shape.Malformed as error:
            raise self._broken(str(error)) from error
        problem = body.get("error")
        if not problem:
            return body
        said = self._redactor.text(message_of(data.encode()))
        code = problem.get("code") if isinstance(problem, dict) else None
        if code in BUSY and draft.chunks == 0:
            return Refused(status=int(code), retry_after_s=None, said=said)
        raise self._broken(f"the server reports an error inside the stream: {said!r}")

    def _broken(self, why: str) -> EndpointError:
        return EndpointError(
            f"POST {self._outgoing.url}: broken event stream: {self._redactor.text(why)};"
            " look at the server's log and at proxies in between"
        )


def add_to(draft: Draft, body: dict[str, Any], outgoing: Outgoing, redactor: Redactor) -> bool:
    """Merge a body into a draft; a body of another shape is an EndpointError."""
    try:
        return draft.add(body)
    except shape.Malformed as error:
        raise not_json(outgoing.asked, "", b"", error, redactor) from error
