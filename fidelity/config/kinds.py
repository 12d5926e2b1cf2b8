"""How one setting is read, whatever it came from: a flag, the environment or a TOML value.

A kind knows what it accepts, so that a refusal can say it. Nothing falls back to a default.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fidelity.words import Traffic

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MAX_INTEGER = 2**53


class Unreadable(ValueError):
    """A value is not of the kind asked for; the message says what it is instead."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`read` returns the typed value or raises ValueError; `accepted` completes "expected ...".

    `schema` says the same of a value in a file, as JSON schema, for editors.
    """

    accepted: str
    read: Callable[[object], Any]
    schema: Mapping[str, Any] = field(default_factory=dict)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the closest known word, or ""."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unreadable("not a text")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    found = words.get(str(value).strip().lower())
    if found is None:
        raise Unreadable("not a boolean")
    return found


def _env_name(value: object) -> str:
    name = _text(value)
    if not _ENV_NAME.match(name):
        raise Unreadable("not a variable name")
    return name


def read_url(value: object) -> str:
    """Return an http(s) URL without trailing slash.

    Raises:
        Unreadable: another scheme, no host, or a password or a query in it: a URL is stored in
            every run, so that nothing secret may be part of it.
    """
    url = _text(value).strip()
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Unreadable("not an http URL")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Unreadable("a URL with user, password, query or fragment")
    _ = parts.port  # raises ValueError when it is no number
    return url.rstrip("/")


def integer(low: int, high: int = _MAX_INTEGER) -> Kind:
    """Whole numbers from `low` to `high`."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Unreadable("not a whole number")
        number = int(value.replace("_", "")) if isinstance(value, str) else value
        if not low <= number <= high:
            raise Unreadable("out of range")
        return number

    return Kind(
        f"a whole number from {low} to {high}",
        read,
        {"type": "integer", "minimum": low, "maximum": high},
    )


def seconds(low: float, high: float = 604_800.0) -> Kind:
    """Seconds, at most a week."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise Unreadable("not a number")
        number = float(value)
        if not low <= number <= high:  # NaN fails too
            raise Unreadable("out of range")
        return number

    return Kind(
        f"seconds from {low:g} to {high:g}",
        read,
        {"type": "number", "minimum": low, "maximum": high},
    )


def one_of(words: type[StrEnum] | tuple[str, ...]) -> Kind:
    """One word of a closed list; an enum's member is returned for an enum."""
    names = [str(word) for word in words]

    def read(value: object) -> str:
        word = _text(value).strip()
        if word not in names:
            raise Unreadable(f"unknown word{nearest(word, names)}")
        return words(word) if isinstance(words, type) else word

    return Kind("one of " + ", ".join(names), read, {"enum": names})


def _path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_text(value))


_SOME_TEXT = {"type": "string", "minLength": 1}
TEXT = Kind("a text", _text, _SOME_TEXT)
BOOLEAN = Kind("true or false", _boolean, {"type": "boolean"})
PATH = Kind("a path", _path, _SOME_TEXT)
URL = Kind(
    "an http or https URL without user, password or query",
    read_url,
    {"type": "string", "pattern": "^https?://"},
)
ENV_NAME = Kind(
    "the name of an environment variable (the key itself is never written down)",
    _env_name,
    {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
)
TRAFFIC = one_of(Traffic)


def split_commas(text: str) -> list[str]:
    """Split "a, b" at its commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def split_shell(text: str) -> list[str]:
    """Split as a shell would; patch values hold commas of their own."""
    return shlex.split(text)
