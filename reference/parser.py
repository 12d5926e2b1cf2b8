"""A completion's text as an assistant message, strictly: what does not fit is refused.

[reasoning · </think> ·] content [· block of calls] · EOS
"""

import json
import re
from dataclasses import dataclass

from reference.arguments import refuse
from reference.encoding_constants import Constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call: `arguments` is JSON text, values of string="false" as they were written."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model said; `reasoning` is None in chat mode."""

    content: str
    reasoning: str | None
    calls: tuple[Call, ...]


def parse(constants: Constants, text: str, *, thinking: bool) -> Answer:
    """Read a whole completion, up to and with its EOS.

    Raises: ValueError: no `</think>` in thinking mode, no EOS or text behind it, a marker inside
        reasoning or content, a malformed block of calls, text behind it, a parameter twice.
    """
    reasoning = None
    body, end, rest = text.partition(constants.eos)
    if not end or rest:
        refuse("text", "no EOS" if not end else f"text after EOS: {rest[:40]!r}", "one EOS, last")
    opening = f"<{constants.dsml}tool_calls>"
    if thinking:
        reasoning, end, body = body.partition(constants.think_end)
        if not end or opening in reasoning:
            refuse("text", f"no {constants.think_end} before its answer", "closed reasoning")
    content, found, block = body.partition(opening)
    if found:
        content = _without_separator(constants, content)
    for name, part in (("reasoning", reasoning or ""), ("content", content)):
        for marker in (constants.bos, constants.think_start, constants.think_end, constants.dsml):
            if marker in part:
                refuse(name, f"the marker {marker}", "text without markers")
    return Answer(
        content=content, reasoning=reasoning, calls=_calls(constants, block) if found else ()
    )


def _without_separator(constants: Constants, content: str) -> str:
    after_text, after_nothing = constants.calls_after
    if content == after_nothing:
        return ""
    if not content.endswith(after_text):
        refuse("content", f"{content[-20:]!r} before a block of calls", f"... {after_text!r}")
    return content.removesuffix(after_text)


def _calls(constants: Constants, block: str) -> tuple[Call, ...]:
    dsml = re.escape(constants.dsml)
    invoke = re.compile(rf'\n<{dsml}invoke name="([^"]*)">\n(.*?)\n?</{dsml}invoke>', re.DOTALL)
    calls = []
    at = 0
    while match := invoke.match(block, at):
        calls.append(Call(name=match[1], arguments=_arguments(dsml, match[2])))
        at = match.end()
    if block[at:] != f"\n</{constants.dsml}tool_calls>" or not calls:
        refuse("block of calls", repr(block[at : at + 40]), "invokes, then the end of the block")
    return tuple(calls)


def _arguments(dsml: str, text: str) -> str:
    """One JSON object; values that are no strings are passed on as they are written."""
    parameter = re.compile(
        rf'<{dsml}parameter name="([^"]*)" string="(true|false)">(.*?)</{dsml}parameter>(\n|\Z)',
        re.DOTALL,
    )
    members: dict[str, str] = {}
    at = 0
    while match := parameter.match(text, at):
        name, is_text, value = match[1], match[2] == "true", match[3]
        if name in members:
            refuse("parameter", f"{name!r} twice", "each name once")
        members[name] = json.dumps(value, ensure_ascii=False) if is_text else value
        at = match.end()
    if at != len(text):
        refuse("parameter", repr(text[at : at + 40]), "parameters, one a line")
    pairs = (f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in members.items())
    return "{" + ", ".join(pairs) + "}"
