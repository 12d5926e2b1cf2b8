"""One table of a TOML file, read strictly: every key is known, typed, and has a line to blame."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fidelity.config.kinds import Kind, Unreadable, nearest, shown
from fidelity.config.redaction import is_secret_name
from fidelity.errors import ConfigError

_NAME = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_SECTION = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_MARKS = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]',
    re.DOTALL,
)
"""What a text of TOML is cut at: texts and comments whole, so that nothing in them counts."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Where each key of a TOML text stands; the standard parser does not say."""

    file: Path
    numbers: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, file: Path, text: str) -> "Lines":
        """Index a text. A key inside an inline table is found at the line of that table."""
        numbers: dict[tuple[str, ...], int] = {}
        entries: dict[tuple[str, ...], int] = {}
        section: tuple[str, ...] = ()
        for number, line in _starts(text):
            if found := _SECTION.match(line):
                section = _names(found[1])
                if line.lstrip().startswith("[["):
                    entries[section] = entries.get(section, 0) + 1
                section = _in_entry(section, entries)
                numbers.setdefault(section, number)
            elif found := _KEY.match(line):
                numbers.setdefault((*section, *_names(found[1])), number)
        return cls(file, numbers)

    def where(self, path: tuple[str, ...]) -> str:
        """Return "file:line" of a key, or of the closest table around it."""
        for length in range(len(path), 0, -1):
            if number := self.numbers.get(path[:length]):
                return f"{self.file}:{number}"
        return str(self.file)


def _starts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that begin something, with their numbers: none inside a text or a list."""
    number, depth, begin, begun = 1, 0, 0, 1
    for mark in _MARKS.finditer(f"{text}\n"):
        found = mark[0]
        if found == "\n" and depth == 0:
            yield begun, text[begin : mark.start()]
            begin = mark.end()
        depth = max(0, depth + (found in "[{") - (found in "]}"))
        number += found.count("\n")
        if found == "\n" and depth == 0:
            begun = number


def _in_entry(section: tuple[str, ...], entries: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """Return the path of a section, with the number of the entry of [[…]] that it belongs to."""
    count = entries.get(section[:1])
    return section if count is None else (section[0], str(count), *section[1:])


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(name.strip("\"'") for name in re.findall(_NAME, dotted))


class Table:
    """Hands out the keys of one table; `finish` refuses whatever nobody asked for."""

    def __init__(self, data: Mapping[str, Any], path: tuple[str, ...], lines: Lines) -> None:
        self._data = data
        self._path = path
        self._lines = lines
        self._known: list[str] = []

    @property
    def names(self) -> list[str]:
        """Keys that the file really has."""
        return list(self._data)

    def where(self, key: str = "") -> str:
        """Return "file:line" of a key of this table, or of the table itself."""
        return self._lines.where((*self._path, key) if key else self._path)

    def refuse(self, key: str, why: str) -> ConfigError:
        """Return the error that names file, line, table and key."""
        table = f"[{'.'.join(self._path)}] " if self._path else ""
        return ConfigError(f"{self.where(key)}: {table}{key}: {why}")

    def tables(self, key: str) -> "list[Table]":
        """Return the entries of [[key]]; their paths count from 1."""
        self._known.append(key)
        entries = self._data.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self.refuse(key, f"expected tables, each under [[{key}]]")
        return [
            Table(entry, (*self._path, key, str(number)), self._lines)
            for number, entry in enumerate(entries, start=1)
        ]

    def know(self, keys: Iterable[str]) -> None:
        """Accept keys that are read elsewhere."""
        self._known += keys

    def take(self, key: str, kind: Kind, default: Any = None) -> Any:
        """Return the value of one key, or the default when the file has none.

        Raises:
            ConfigError: the value is not of that kind.
        """
        self._known.append(key)
        if key not in self._data:
            return default
        try:
            return kind.read(self._data[key])
        except ValueError as error:
            seen = kind.show(self._data[key])
            raise self.refuse(key, f"expected {kind.accepted}, found {seen} ({error})") from None

    def take_list(self, key: str, kind: Kind) -> tuple[Any, ...]:
        """Return a list of values of one kind; () when the file has none."""
        found: tuple[Any, ...] = self.take(
            key, Kind(f"a list, each {kind.accepted}", _each(kind)), ()
        )
        return found

    def table(self, key: str) -> "Table":
        """Return a sub-table, empty when the file has none."""
        self._known.append(key)
        data = self._data.get(key, {})
        if not isinstance(data, dict):
            raise self.refuse(key, f"expected a table, found {shown(data)}")
        return Table(data, (*self._path, key), self._lines)

    def finish(self) -> None:
        """Refuse unknown keys.

        Raises:
            ConfigError: names the first one, what is known, and the nearest match.
        """
        for key in self._data:
            if key not in self._known:
                if is_secret_name(key):
                    raise self.refuse(
                        key, 'a key is named by environment variable, write api_key_env = "NAME"'
                    )
                known = ", ".join(sorted(set(self._known)))
                hint = nearest(key, self._known)
                raise self.refuse(key, f"unknown key{hint}. Known here: {known}")


def _each(kind: Kind) -> Any:
    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Unreadable("not a list")
        return tuple(kind.read(item) for item in value)

    return read
