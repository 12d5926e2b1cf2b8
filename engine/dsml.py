"""V4's tool-call block (DSML) read from a stream, as OpenAI argument deltas.

    <｜DSML｜tool_calls>
    <｜DSML｜invoke name="f">
    <｜DSML｜parameter name="k" string="true">text, verbatim</｜DSML｜parameter>
    <｜DSML｜parameter name="n" string="false">{"json": 1}</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜tool_calls>

A function's arguments become one JSON object. String values stream as they come; other values
are passed on whole, once closed. An invoke may also hold one JSON object instead of parameters.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from engine.detokenizer import partial_suffix

HEADER_LIMIT = 512  # characters; a longer opening tag is text, not a tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of an answer.

    `call` announces a function by its name; `arguments` carries a part of that call's JSON.
    """

    kind: Literal["reasoning", "content", "call", "arguments"]
    text: str
    call: int = 0  # which call of the answer, from 0


class ToolBlock:
    """One block, from just behind its opening tag. Not thread-safe.

    `feed` until `closed` (the block is complete, or as many calls as asked for are) or
    `malformed`. Then `unshown` and `unread` are text that belongs to no call.
    """

    def __init__(self, dsml: str, opening: str, *, first_call: int, max_calls: int | None) -> None:
        """`opening` is the tag just read; `unshown` gives it back should this be no block."""
        self._header = re.compile(rf'<{dsml}invoke name="([^"<>\n]+)">')
        self._parameter = re.compile(rf'<{dsml}parameter name="([^"<>\n]+)" string="(true|false)">')
        self._tags = {
            "invoke": f'<{dsml}invoke name="',
            "parameter": f'<{dsml}parameter name="',
            "end of block": f"</{dsml}tool_calls>",
            "end of invoke": f"</{dsml}invoke>",
            "end of parameter": f"</{dsml}parameter>",
        }
        self._step: Callable[[], bool] = self._between_calls
        self.unshown = opening
        self.unread = ""
        self._deltas: list[Delta] = []
        self._names: set[str] = set()
        self._max_calls = max_calls
        self.calls = first_call
        self.closed = False
        self.malformed = False

    def feed(self, text: str) -> list[Delta]:
        """The deltas that this text completes."""
        self.unread += text
        while not self.closed and not self.malformed and self._step():
            pass
        deltas, self._deltas = self._deltas, []
        return deltas

    def close(self) -> list[Delta]:
        """What is left when the stream ends inside the block: an argument value cut short."""
        if self._step == self._string_value:
            self._arguments(_escaped(self.unread))
        elif self._step in (self._json_value, self._json_body):
            self._arguments(self.unread)
        elif not self.unshown:
            self.unread = ""  # half a tag inside a call already shown: structure, no text
        else:
            return []
        self.unread = ""
        deltas, self._deltas = self._deltas, []
        return deltas

    def _arguments(self, text: str) -> None:
        if text:
            self._deltas.append(Delta(kind="arguments", text=text, call=self.calls - 1))

    def _skip(self, length: int) -> None:
        if self.unshown:
            self.unshown += self.unread[:length]
        self.unread = self.unread[length:]

    def _skip_space(self) -> None:
        self._skip(len(self.unread) - len(self.unread.lstrip()))

    def _opening(self, pattern: re.Pattern[str], tag: str) -> re.Match[str] | None:
        """The tag at the start of the text; marks the block malformed where it cannot be one."""
        match = pattern.match(self.unread)
        prefix = self._tags[tag]
        beginning = prefix.startswith(self.unread[: len(prefix)])
        if match is None and (
            not beginning or ">" in self.unread[len(prefix) :] or len(self.unread) > HEADER_LIMIT
        ):
            self.malformed = True
        return match

    def _starts(self, tag: str) -> bool:
        return self.unread.startswith(self._tags[tag])

    def _may_become(self, tag: str) -> bool:
        return self._tags[tag].startswith(self.unread)

    def _between_calls(self) -> bool:
        self._skip_space()
        if self._starts("end of block"):
            self._skip(len(self._tags["end of block"]))
            self.unshown = ""
            self.closed = True
            return False
        if self._may_become("end of block"):
            return False
        header = self._opening(self._header, "invoke")
        if header is None:
            return False
        self.unread = self.unread[header.end() :]
        self.unshown = ""
        self._names = set()
        self.calls += 1
        self._deltas.append(Delta(kind="call", text=header[1], call=self.calls - 1))
        self._step = self._inside_invoke
        return True

    def _inside_invoke(self) -> bool:
        self._skip_space()
        if self._starts("end of invoke"):
            self._skip(len(self._tags["end of invoke"]))
            self._arguments("}" if self._names else "{}")
            return self._end_of_call()
        if self._may_become("end of invoke"):
            return False
        if self.unread.startswith("{") and not self._names:
            self._step = self._json_body
            return True
        header = self._opening(self._parameter, "parameter")
        if header is None:
            return False
        name, is_string = header[1], header[2] == "true"
        if name in self._names:  # two values for one name: no JSON object can hold both
            self.malformed = True
            return False
        self.unread = self.unread[header.end() :]
        opening = ", " if self._names else "{"
        self._names.add(name)
        key = json.dumps(name, ensure_ascii=False)
        self._arguments(f"{opening}{key}: {chr(34) if is_string else ''}")
        self._step = self._string_value if is_string else self._json_value
        return True

    def _end_of_call(self) -> bool:
        self._step = self._between_calls
        self.closed = self.calls == self._max_calls
        return True

    def _string_value(self) -> bool:
        end = self._tags["end of parameter"]
        value, found, rest = self.unread.partition(end)
        if not found:
            keep = partial_suffix(self.unread, end)
            value, rest = (
                self.unread[: len(self.unread) - keep],
                self.unread[len(self.unread) - keep :],
            )
        self._arguments(_escaped(value) + ('"' if found else ""))
        self.unread = rest
        if found:
            self._step = self._inside_invoke
        return bool(found)

    def _json_value(self) -> bool:
        value, found, rest = self.unread.partition(self._tags["end of parameter"])
        if not found:
            return False
        self._arguments(value.strip() if _is_json(value) else json.dumps(value, ensure_ascii=False))
        self.unread = rest
        self._step = self._inside_invoke
        return True

    def _json_body(self) -> bool:
        body, found, rest = self.unread.partition(self._tags["end of invoke"])
        if not found:
            return False
        self._arguments(body.strip())
        self.unread = rest
        return self._end_of_call()


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
