"""Whether a condition of fidelity.toml holds on a server, and what shows it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fidelity.config.patch_spec import Condition

_MOST_LOG_BYTES = 256 << 20
_MOST_LINE = 8_192
ON, OFF, UNKNOWN = "on", "off", "unknown"


@dataclass(slots=True, kw_only=True)
class Seen:
    """What one server showed, asked once for all conditions; errors say why it did not."""

    patches: dict[str, dict[str, Any]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    logs: tuple[Path, ...] = ()
    last_lines: tuple[str, ...] = ()
    trouble: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Of one condition on one server: held, did not, or cannot be told (None)."""

    held: bool | None
    words: str
    calls: int | None = None
    inert: bool = False
    """It is on and has never run: installed, and not shown to be live."""


def proof_of(condition: Condition, seen: Seen) -> Proof:
    """Judge a condition by what a server showed."""
    if condition.patches:
        return _in_list(condition, seen)
    if condition.server_info:
        return _in_info(condition, seen)
    if condition.metric:
        return _in_metrics(condition, seen)
    return _in_log(condition.log, seen)


def _in_list(condition: Condition, seen: Seen) -> Proof:
    if "patches" in seen.trouble:
        return Proof(held=None, words=seen.trouble["patches"])
    entry = seen.patches.get(condition.patches)
    if entry is None:
        return Proof(held=False, words=f"the server lists no patch {condition.patches!r}")
    calls = entry.get("calls")
    calls = calls if isinstance(calls, int) and not isinstance(calls, bool) else None
    value = entry.get("value")
    words = f"state {entry.get('state')}" + (f", value {value}" if value is not None else "")
    if entry.get("state") != ON:
        return Proof(held=False, words=words, calls=calls)
    if condition.equals is not None and str(value) != str(condition.equals):
        return Proof(held=False, words=f"{words}, not {condition.equals}", calls=calls)
    told = f"{words}, {calls} calls" if calls is not None else f"{words}, no call count"
    return Proof(held=calls != 0, words=told, calls=calls, inert=calls == 0)


def _in_info(condition: Condition, seen: Seen) -> Proof:
    if "info" in seen.trouble:
        return Proof(held=None, words=seen.trouble["info"])
    found: Any = seen.info
    for part in condition.server_info.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        else:
            return Proof(held=False, words=f"server info has no {condition.server_info}")
    return Proof(
        held=_as_wanted(condition, found),
        words=f"server info {condition.server_info} = {str(found)[:200]}",
    )


def _in_metrics(condition: Condition, seen: Seen) -> Proof:
    if "metrics" in seen.trouble:
        return Proof(held=None, words=seen.trouble["metrics"])
    found = seen.metrics.get(condition.metric)
    if found is None:
        return Proof(held=False, words=f"no metric {condition.metric}")
    return Proof(held=_as_wanted(condition, found), words=f"metric {condition.metric} = {found:g}")


def _as_wanted(condition: Condition, found: Any) -> bool:
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if condition.at_least is not None:
        return number and found >= condition.at_least
    if condition.equals is not None:
        wanted = condition.equals
        if isinstance(wanted, bool) or isinstance(found, bool):
            return found is wanted
        return bool(found == wanted) or str(found) == str(wanted)
    return bool(found)


def _in_log(pattern: str, seen: Seen) -> Proof:
    if "log" in seen.trouble:
        return Proof(held=None, words=seen.trouble["log"])
    wanted = re.compile(pattern)
    try:
        line = next((line for line in _lines(seen) if wanted.search(line)), None)
    except OSError as error:
        return Proof(held=None, words=f"the log cannot be read: {error.strerror}")
    if line is None:
        return Proof(held=False, words=f"no line of the log matches {pattern!r}")
    shown = "".join(char if char.isprintable() else " " for char in line.strip())[:200]
    return Proof(held=True, words=f"log line {shown!r}")


def _lines(seen: Seen) -> Iterator[str]:
    """Yield the lines of the logs, bounded; the last ones of a process come after its file."""
    for path in seen.logs:
        read = 0
        with path.open(errors="replace") as file:
            while line := file.readline(_MOST_LINE):
                read += len(line)
                if read > _MOST_LOG_BYTES:
                    break
                yield line
    yield from seen.last_lines
