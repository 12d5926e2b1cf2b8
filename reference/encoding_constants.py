"""The constants of a checkpoint's chat encoding, from its encoding.json; the rules are V4's."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = "deepseek_v4_chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Markers and wording.

    Attributes:
        tools_template: the tool section; `{schemas}` is where the functions stand, one a line.
        tools_after: separator before the section after (some text, no text).
        calls_after: separator before a block of tool calls after (some text, no text).
        tool_result: what encloses a tool's result.
        latest_reminder: marker of that role; None where the model has none.
        efforts: reasoning effort -> paragraph right after BOS; "" for none.
    """

    bos: str
    eos: str
    user: str
    assistant: str
    think_start: str
    think_end: str
    dsml: str
    latest_reminder: str | None
    tools_template: str
    tools_after: tuple[str, str]
    calls_after: tuple[str, str]
    tool_result: tuple[str, str]
    drop_thinking: bool
    efforts: dict[str, str]


def read_constants(path: Path) -> Constants:
    """Read encoding.json.

    Raises: ValueError: it is missing, no JSON, of another format, or lacks a key; names which.
    """
    try:
        return _build(json.loads(path.read_text(encoding="utf-8")))
    except KeyError as missing:
        raise ValueError(f"{path} has no key {missing.args[0]!r}") from missing
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from error


def _build(raw: dict[str, Any]) -> Constants:
    if raw["format"] != FORMAT:
        raise ValueError(f"format is {raw['format']!r}, not {FORMAT!r}")
    same = ("bos", "eos", "user", "assistant", "think_start", "think_end", "dsml")
    tools, calls, result = raw["tools"], raw["calls"], raw["tool_result"]
    return Constants(
        **{name: raw[name] for name in same},
        latest_reminder=raw["latest_reminder"],
        tools_template=tools["template"],
        tools_after=(tools["after_text"], tools["after_nothing"]),
        calls_after=(calls["after_text"], calls["after_nothing"]),
        tool_result=(result["start"], result["end"]),
        drop_thinking=raw["drop_thinking"],
        efforts=raw["efforts"],
    )
