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

from fidelity.config.redaction import without_url_secrets
from fidelity.words import Traffic

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_DIGITS = re.compile(r"[+-]?[0-9][0-9_]{0,99}\Z")
_MAX_INTEGER = 2**53
_MOST_SHOWN = 80


class Unreadable(ValueError):
    """A value is not of the kind asked for; the message says what it is instead."""


def shown(value: object) -> str:
    """Return a refused value for a message: never what a list or table holds, nor a long text."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _MOST_SHOWN else f"a text of {len(value)} characters"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, int) and value.bit_length() > _MOST_SHOWN:
        return "a far larger number"  # which Python would refuse to write out
    return repr(value)[:_MOST_SHOWN]


@dataclass(frozen=True, slots=True)
class Kind:
    """`read` returns the typed value or raises ValueError; `accepted` completes "expected ...".

    `schema` says the same of a value in a file, as JSON schema, for editors; `show` returns a
    refused value as a message may repeat it.
    """

    accepted: str
    read: Callable[[object], Any]
    schema: Mapping[str, Any] = field(default_factory=dict)
    show: Callable[[object], str] = shown


def _shown_url(value: object) -> str:
    return shown(without_url_secrets(value) if isinstance(value, str) else value)


def _hidden(value: object) -> str:
    """Show nothing of a value that may be the key itself, in place of its variable's name."""
    return f"something else ({len(value)} characters)" if isinstance(value, str) else shown(value)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the closest known word, or ""."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unreadable("not a text")
    return without_nul(value)


def without_nul(text: str) -> str:
    """Return a text that no command line or variable would be cut at.

    Raises:
        Unreadable: there is a NUL in it.
    """
    if "\0" in text:
        raise Unreadable("a NUL character in it")
    return text


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
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Unreadable("not an http URL") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Unreadable("not an http URL")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Unreadable("a URL with user, password, query or fragment")
    try:
        _ = parts.port
    except ValueError:
        raise Unreadable("a port that is none") from None
    return url.rstrip("/")


def integer(low: int, high: int = _MAX_INTEGER) -> Kind:
    """Whole numbers from `low` to `high`."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Unreadable("not a whole number")
        if isinstance(value, str) and not _DIGITS.match(value.strip()):
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
        try:
            number = float(value)
        except (OverflowError, ValueError):
            raise Unreadable("not a number of this size") from None
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
    _shown_url,
)
ENV_NAME = Kind(
    "the name of an environment variable (the key itself is never written down)",
    _env_name,
    {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    _hidden,
)
TRAFFIC = one_of(Traffic)


def _env_text(value: object) -> str:
    if not isinstance(value, str):
        raise Unreadable("not a text")
    return without_nul(value)


def _variable(value: object) -> str:
    name = _text(value)
    if "=" in name:
        raise Unreadable("an equals sign in it")
    return name


def _header(value: object) -> str:
    text = _text(value)
    if not text.isascii() or not text.isprintable():
        raise Unreadable("characters that no HTTP header can carry")
    return text


def _header_name(value: object) -> str:
    name = _text(value)
    if not _HEADER_NAME.match(name):
        raise Unreadable("characters that no header's name can have")
    return name


ENV_TEXT = Kind("a text, which may be empty", _env_text, {"type": "string"})
VARIABLE = Kind("the name of a variable", _variable, _SOME_TEXT)
HEADER = Kind("a text of printable ASCII", _header, _SOME_TEXT)
HEADER_NAME = Kind("the name of a header", _header_name, _SOME_TEXT)


def number(
    low: float, high: float, *, above: bool = False, whole: bool = False, odd: float | None = None
) -> Kind:
    """Numbers from `low` to `high`.

    Args:
        low: least number.
        high: greatest number.
        above: greater than `low`, not equal.
        whole: whole numbers only.
        odd: one further number outside, which servers give a meaning of its own.
    """

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unreadable("not a number")
        if whole and not isinstance(value, int):
            raise Unreadable("not a whole number")
        inside = low < value <= high if above else low <= value <= high  # NaN fails too
        if not (inside or value == odd):
            raise Unreadable("out of range")
        return value

    words = f"a {'whole ' if whole else ''}number {'above' if above else 'from'} {low:g} to"
    schema: dict[str, Any] = {"type": "integer" if whole else "number", "maximum": high}
    schema["exclusiveMinimum" if above else "minimum"] = low
    if odd is not None:
        schema["minimum"] = min(low, odd)
    return Kind(f"{words} {high:g}" + (f", or {odd:g}" if odd is not None else ""), read, schema)


def split_commas(text: str) -> list[str]:
    """Split "a, b" at its commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def split_shell(text: str) -> list[str]:
    """Split as a shell would; patch values hold commas of their own."""
    return shlex.split(text)
