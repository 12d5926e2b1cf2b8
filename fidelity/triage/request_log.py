"""Chats in a request log: SGLang's lines, as text or as JSON, each with the messages it received.

[2026-01-31 12:00:00] Receive OpenAI: obj={'model': …, 'messages': […]}
[2026-01-31 12:00:00] {"timestamp": …, "event": "request.received.openai", "obj": {…}}
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fidelity.triage.conversation import TOO_DEEP, too_deep

_TIME = re.compile(r"\[([^\]]{4,40})\]")
_LONGEST_PREFIX = 200
"""Of a line: a container's name, a pod, a time stamp, a level."""
_TEXT_LINE = re.compile(r"Receive OpenAI: obj=")
_SHORTENED_TEXT = re.compile(r"""['"] \.\.\. ['"]""")
_HALF = 1024
_SHORTENED_JSON = re.compile(rf"^.{{{_HALF}}}\.\.\..{{{_HALF}}}\Z", re.DOTALL)
"""Level 2 keeps so many characters of each end; a text of exactly this length is one of those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One logged request.

    Attributes:
        at: when, as the log says; "" when it does not.
        body: what was received; {} where the line cannot be read.
        shortened: the log cut a text, so that the request cannot be sent again as it was.
        trouble: why it cannot be read.
    """

    at: str
    body: Mapping[str, Any]
    shortened: bool = False
    trouble: str = ""


def entries_of(text: str) -> list[Entry]:
    """Return every received chat of a log, in order; [] when it holds none."""
    # at "\\n" alone: JSON and Python write other separators (U+2028, U+0085) into texts as they are
    return [entry for line in text.split("\n") for entry in _of_line(line)]


def _of_line(line: str, levels: int = 2) -> Iterator[Entry]:
    stamp = _TIME.search(line[:_LONGEST_PREFIX])
    at = stamp[1] if stamp else ""
    found = _json_in(line)
    if found is not None:
        chats = list(entries_in(found, at))
        wrapped = found.get("log", found.get("message"))
        if not chats and isinstance(wrapped, str) and levels:  # a container's log of a log
            chats = list(_of_line(wrapped, levels - 1))
        yield from chats
    elif marked := _TEXT_LINE.search(line):
        yield _of_text(line[marked.end() :], at)


def _json_in(line: str) -> Mapping[str, Any] | None:
    """Return the JSON object that ends a line, behind whatever a log collector put before it."""
    begin = line.find("{", 0, _LONGEST_PREFIX)
    while begin >= 0:
        try:
            found = json.loads(line[begin:])
        except (ValueError, RecursionError):
            begin = line.find("{", begin + 1, _LONGEST_PREFIX)
            continue
        return found if isinstance(found, dict) else None
    return None


def entries_in(found: Mapping[str, Any], at: str = "") -> Iterator[Entry]:
    """Yield the chat of one JSON object: of a log, of a batch file, or a request itself."""
    for place in (found, found.get("obj"), found.get("body"), found.get("request")):
        if isinstance(place, Mapping) and "messages" in place:
            when = at or str(found.get("timestamp", ""))
            if too_deep(place):
                yield Entry(at=when, body={}, trouble=TOO_DEEP)
            else:
                yield Entry(at=when, body=place, shortened=_is_shortened(place))
            return


def _is_shortened(value: Any) -> bool:
    if isinstance(value, str):
        return bool(_SHORTENED_JSON.match(value))
    if isinstance(value, Mapping):
        return any(_is_shortened(item) for item in value.values())
    if isinstance(value, list):
        cut = len(value) == 2 * _HALF + 1 and value[_HALF] == "..."
        return cut or any(_is_shortened(item) for item in value)
    return False


def _of_text(text: str, at: str) -> Entry:
    literal = _literal(text)
    try:
        body = ast.literal_eval(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        cut = bool(_SHORTENED_TEXT.search(literal)) or "] ... [" in literal
        why = "the log shortened a text of it" if cut else "it is no Python literal"
        return Entry(at=at, body={}, shortened=cut, trouble=why)
    if not isinstance(body, dict):
        return Entry(at=at, body={}, trouble="it is no request")
    return Entry(at=at, body=body)


def _literal(text: str) -> str:
    """Return the leading {…} of a line; braces inside quotes do not count."""
    depth, quote, skip = 0, "", False
    for at, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
            if depth == 0:
                return text[: at + 1]
    return text
