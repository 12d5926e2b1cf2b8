"""Server-sent events from bytes, as strict as the standard and as lenient as real servers need.

CRLF, LF and CR line ends, comments, multi-line data, a byte order mark, several events in one TCP
chunk and one event in several. Lines and the whole stream are bounded; text must be UTF-8.
"""

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 64 << 20
"""Logprobs of a whole long prompt arrive as one line."""
MAX_STREAM_BYTES = 512 << 20


class BrokenStream(ValueError):
    """The bytes are no event stream; the message says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event; `name` is "" unless the server gave one."""

    data: str
    name: str = ""


class SseParser:
    """Incremental parser: `feed` bytes as they come, `close` at the end of the stream."""

    def __init__(
        self, *, max_line_bytes: int = MAX_LINE_BYTES, max_stream_bytes: int = MAX_STREAM_BYTES
    ) -> None:
        """Start an empty stream with these bounds."""
        self._max_line_bytes = max_line_bytes
        self._max_stream_bytes = max_stream_bytes
        self._buffer = bytearray()
        self._scanned = 0
        self._total = 0
        self._skip_lf = False
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that this chunk completes.

        Raises:
            BrokenStream: a bound is passed, or the data of an event is not UTF-8.
        """
        if self._total == 0:
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        self._total += len(chunk)
        if self._total > self._max_stream_bytes:
            raise BrokenStream(f"the stream is longer than {self._max_stream_bytes} bytes")
        if self._skip_lf and chunk:
            # a CR ended the last chunk and its line; an LF here belongs to it
            chunk = chunk.removeprefix(b"\n")
            self._skip_lf = False
        self._buffer += chunk
        events: list[Event] = []
        start = 0
        while found := _LINE_END.search(self._buffer, max(start, self._scanned)):
            self._take_line(bytes(self._buffer[start : found.start()]), events)
            start = found.end()
            if found[0] == b"\r" and start == len(self._buffer):
                self._skip_lf = True
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        if self._scanned > self._max_line_bytes:
            raise BrokenStream(f"a line is longer than {self._max_line_bytes} bytes")
        return events

    def close(self) -> list[Event]:
        """Return the event that the end of the stream completes, if any.

        Servers exist that end with `data: [DONE]` and no blank line, so a last event counts.

        Raises:
            BrokenStream: its data is not UTF-8.
        """
        events: list[Event] = []
        if self._buffer:
            self._take_line(bytes(self._buffer), events)
            self._buffer.clear()
        self._dispatch(events)
        return events

    def _take_line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value)
            if self._data_bytes > self._max_line_bytes:
                raise BrokenStream(f"an event is longer than {self._max_line_bytes} bytes")
        elif field == b"event":
            self._name = value
        # a comment has an empty field name; id, retry and unknown fields mean nothing here

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            try:
                data = b"\n".join(self._data).decode()
            except UnicodeDecodeError as error:
                raise BrokenStream(f"an event is not UTF-8: {error.reason}") from error
            events.append(Event(data, self._name.decode(errors="replace")))
        self._data = []
        self._data_bytes = 0
        self._name = b""
