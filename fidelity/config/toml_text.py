"""The bytes of a fidelity.toml as data; what is no TOML is told in one sentence with its line."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fidelity.errors import ConfigError

_MAX_BYTES = 1 << 20
_MOST_LEVELS = 100
"""Of tables and lists in each other; no key of ours holds as many."""
_AT_LINE = re.compile(r"\s*\(at line (\d+), column (\d+)\)\s*\Z")
_LONG_NUMBER = re.compile(r"[0-9][0-9_]{4000,}")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]{1,80})\s*=")


def parse(path: Path, raw: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text and its data; a byte order mark at its start is no part of it.

    Raises:
        ConfigError: too long, not UTF-8, not TOML, or nested without end; names the line.
    """
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{path} is longer than {_MAX_BYTES >> 20} MiB: nothing of ours is")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line} is not UTF-8: {error.reason}") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_located(path, text, str(error))) from None
    except ValueError:  # of the standard library: Python reads no number of so many digits
        raise ConfigError(
            _of_line(path, text, _longest_number(text), "a number too long")
        ) from None
    except RecursionError:
        raise ConfigError(_of_line(path, text, _most_nested(text), "nested too deep")) from None
    if _deeper_than(data, _MOST_LEVELS):
        raise ConfigError(_of_line(path, text, _most_nested(text), "nested too deep"))
    return text, data


def _located(path: Path, text: str, said: str) -> str:
    found = _AT_LINE.search(said)
    if found is None:  # "(at end of document)"
        return f"{path}:{text.rstrip().count(chr(10)) + 1} is not TOML: {said}"
    return f"{path}:{found[1]} is not TOML: {said[: found.start()]} (column {found[2]})"


def _of_line(path: Path, text: str, at: int, what: str) -> str:
    """Return a sentence about the line around a place, with the key that it begins with."""
    begin = text.rfind("\n", 0, at) + 1
    key = _KEY.match(text[begin : begin + 100])
    where = f"{path}:{text.count(chr(10), 0, begin) + 1}"
    return f"{where}: {key[1]}: {what}" if key else f"{where}: {what}"


def _longest_number(text: str) -> int:
    found = max(_LONG_NUMBER.finditer(text), key=lambda one: len(one[0]), default=None)
    return found.start() if found is not None else 0


def _most_nested(text: str) -> int:
    lines = text.splitlines(keepends=True)
    worst = max(range(len(lines)), key=lambda at: sum(lines[at].count(mark) for mark in "[{."))
    return sum(len(line) for line in lines[:worst])


def _deeper_than(value: object, levels: int) -> bool:
    """Tell whether data is nested deeper; it is looked at without recursion."""
    level: list[object] = [value]
    for _ in range(levels):
        level = [
            inner
            for outer in level
            if isinstance(outer, Mapping | list)
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
        ]
        if not level:
            return False
    return True
