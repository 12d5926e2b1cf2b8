"""What decides how pytest runs the microtests, beside conftest.py: its configuration files.

They are looked for where pytest does: in the folders of the microtests and in all above them. Also
a module that is new at the top, and would be imported in place of pytest or of the interpreter's.
"""

import configparser
import sys
import tomllib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from fidelity.gate.repository import Change, Repository

_WHOLE = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
_SECTIONS = {
    "pyproject.toml": (("tool", "pytest"), ("project", "entry-points", "pytest11")),
    "setup.cfg": (("tool:pytest",), ("options.entry_points", "pytest11")),
    "tox.ini": (("pytest",),),
}
IMPORTED_FIRST = sys.stdlib_module_names - {"test"} | {
    *("pytest", "_pytest", "pluggy", "sitecustomize", "usercustomize"),
    *("fidelity", "hypothesis", "torch", "numpy"),
}


class PytestFiles:
    """Tells which changes bend how microtests are collected and run."""

    def __init__(self, repository: Repository, microtests: Sequence[str], config: str) -> None:
        """Begin; `config` is the text of fidelity.toml, whose command may name further files."""
        self._repository = repository
        self._config = config
        self._folders = {
            str(folder) for path in microtests for folder in PurePosixPath(path).parents
        } or {"."}

    def bent_by(self, change: Change) -> str:
        """Say what a change of a file does to pytest; "" for nothing."""
        path = PurePosixPath(change.path)
        if str(path.parent) in self._folders and path.name in {*_WHOLE, *_SECTIONS}:
            old, new = (_asked(path.name, text) for text in self._both(change))
            return "" if old == new else f"{change.path} configures pytest"
        if f'"{change.path}"' in self._config or f'={change.path}"' in self._config:
            return self._named(change)
        return self._shadow(path)

    def _named(self, change: Change) -> str:
        """A file that `microtest_command` names: options that a command line reads."""
        command = tomllib.loads(self._config).get("gate", {}).get("microtest_command", [])
        words = {word.rpartition("=")[2] for word in command}
        return f"{change.path} stands in microtest_command" if change.path in words else ""

    def _shadow(self, path: PurePosixPath) -> str:
        name = path.parts[0].removesuffix(".py")
        is_module = path.name in {f"{name}.py", "__init__.py"} and len(path.parts) <= 2
        if (
            not is_module
            or name not in IMPORTED_FIRST
            or self._repository.at_base(str(path)) is not None
        ):
            return ""
        return f"{path} is new, and imported in place of {name}"

    def _both(self, change: Change) -> tuple[bytes | None, bytes | None]:
        path = self._repository.root / change.path
        return self._repository.at_base(change.path), path.read_bytes() if path.is_file() else None


def _asked(name: str, text: bytes | None) -> Any:
    """Return what a file says to pytest; None for nothing, and the text where it is unreadable."""
    if text is None:
        return None
    words = text.decode("utf-8", "replace")
    try:
        if name.endswith(".toml"):
            table: Any = tomllib.loads(words)
        else:
            parser = configparser.ConfigParser(interpolation=None)
            parser.read_string(words)
            table = {section: dict(parser[section]) for section in parser.sections()}
    except (tomllib.TOMLDecodeError, configparser.Error):
        return words
    if name in _WHOLE:  # an empty one counts too: pytest looks no further
        return table
    return [found for way in _SECTIONS[name] if (found := _below(table, way)) is not None] or None


def _below(table: Any, way: Sequence[str]) -> Any:
    for key in way:
        table = table.get(key) if isinstance(table, dict) else None
    return table
