"""Reads what the user gives: a chat as JSON, or a request log with one chat or several."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fidelity.errors import ConfigError
from fidelity.triage.conversation import Conversation, conversation_of, text_of
from fidelity.triage.request_log import Entry, entries_in, entries_of

_MAX_BYTES = 256 << 20
_MOST_LISTED = 30


def read_conversation(path: Path, *, entry: int | None = None) -> Conversation:
    """Return the chat in a file.

    Args:
        path: of a JSON file or a request log.
        entry: number of the request in a file that holds several, from 1.

    Raises:
        ConfigError: no chat in it, several and none chosen, or one that was shortened.
    """
    text = _text(path)
    entries = _entries(text, path)
    if not entries:
        raise ConfigError(
            f"{path} is neither a JSON chat with messages nor a request log with a"
            " `Receive OpenAI` line: give an OpenAI request, or log at level 2 or more"
        )
    chosen = _chosen(entries, entry, path)
    where = f"{path}" if len(entries) == 1 else f"{path}, entry {entries.index(chosen) + 1}"
    if chosen.shortened:
        raise ConfigError(
            f"{where}: the log shortened its texts, so that it cannot be sent as it was: log with"
            " --log-requests-level 3"
        )
    if chosen.trouble:
        raise ConfigError(f"{where}: the request cannot be read: {chosen.trouble}")
    return conversation_of(chosen.body, where)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_BYTES >> 20} MiB: cut the log first")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}") from error


def _entries(text: str, path: Path) -> list[Entry]:
    if not text.strip():
        raise ConfigError(f"{path} is empty")
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return entries_of(text)
    if isinstance(found, list):
        if not found or all(isinstance(m, Mapping) and "role" in m for m in found):
            return [Entry(at="", body={"messages": found})]  # a bare list of messages
        return [e for item in found if isinstance(item, Mapping) for e in entries_in(item)]
    return list(entries_in(found)) if isinstance(found, Mapping) else []


def _chosen(entries: Sequence[Entry], number: int | None, path: Path) -> Entry:
    if number is None and len(entries) == 1:
        return entries[0]
    if number is not None and 1 <= number <= len(entries):
        return entries[number - 1]
    said = f"{path} holds {len(entries)} requests"
    if number is not None:
        said += f", and no entry {number}"
    lines = [_line(at, entry) for at, entry in enumerate(entries[:_MOST_LISTED], start=1)]
    if len(entries) > _MOST_LISTED:
        lines.append(f"  … {len(entries) - _MOST_LISTED} more")
    raise ConfigError("\n".join([f"{said}: choose one with --entry N", *lines]))


def _line(number: int, entry: Entry) -> str:
    at = _plain(entry.at, 40)
    messages = entry.body.get("messages")
    if not isinstance(messages, list):
        return f"  {number:>3}  {at}  ({entry.trouble or 'no messages'})"
    users = [m for m in messages if isinstance(m, Mapping) and m.get("role") == "user"]
    shown = _plain(text_of(users[-1]), 60) if users else ""
    cut = ", shortened" if entry.shortened else ""
    return f"  {number:>3}  {at}  {len(messages)} messages{cut}: {shown}"


def _plain(text: str, most: int) -> str:
    """Return a text on one line, bounded, without what a terminal would obey."""
    flat = " ".join(text[: 100 * most].split())
    flat = "".join(char for char in flat if char.isprintable())
    return flat if len(flat) <= most else f"{flat[: most - 3]}..."
