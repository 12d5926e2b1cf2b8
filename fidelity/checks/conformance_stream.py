"""An event stream read strictly: data of its events, where it ended, and breaches of its form."""

from __future__ import annotations

from dataclasses import dataclass

from fidelity.endpoint.sse import BrokenStream, SseParser

DONE = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A whole event stream.

    Attributes:
        data: of every event before [DONE].
        done: how often [DONE] came.
        after_done: events behind the first [DONE].
        breach: why the bytes are no event stream; "" when they are one.
    """

    data: tuple[str, ...]
    done: int
    after_done: int
    breach: str = ""


def read_stream(body: bytes) -> Stream:
    """Return what a finished stream holds."""
    parser = SseParser()
    try:
        events = [*parser.feed(body), *parser.close()]
    except BrokenStream as error:
        return Stream(data=(), done=0, after_done=0, breach=str(error))
    texts = [event.data for event in events]
    ends = [index for index, text in enumerate(texts) if text.strip() == DONE]
    first = ends[0] if ends else len(texts)
    return Stream(
        data=tuple(texts[:first]),
        done=len(ends),
        after_done=max(0, len(texts) - first - 1),
        breach=_strangers(body),
    )


def _strangers(body: bytes) -> str:
    """Name the first line that the standard gives no meaning: readers may drop or choke on it."""
    for line in body.splitlines():
        name = line.partition(b":")[0]
        if line and name not in {b"data", b"event", b"id", b"retry", b""}:
            return f"a line that is no field of an event stream: {line[:80]!r}"
    return ""
