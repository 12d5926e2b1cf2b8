"""A conversation as the text that the model reads, by DeepSeek-V4's rules.

    BOS · effort · system · <User>question · <Assistant></think>answer · EOS · <User>question · …

with nothing between the parts. Three passes: tool results and neighbouring user messages become
one user message; reasoning of the past is dropped; every message is written, and after a question
that is answered next (or last) the assistant's marker. Nothing is escaped.
"""

import json
from collections.abc import Sequence
from typing import Any

from reference.arguments import refuse
from reference.encoding_constants import Constants

Message = dict[str, Any]
ASKING = ("user", "developer")
ROLES = (*ASKING, "system", "assistant", "tool", "latest_reminder")


def render(
    constants: Constants,
    messages: Sequence[Message],
    *,
    tools: Sequence[dict[str, Any]] = (),
    thinking: bool = False,
    effort: str | None = None,
    drop_thinking: bool | None = None,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt.

    Args:
        constants: markers and wording.
        messages: OpenAI messages: `role`, `content` (a text, text parts, or None), on assistant
            turns `reasoning_content`, `tool_calls` and `wo_eos`, on tool results `tool_call_id`,
            on system and developer messages `tools`.
        tools: of the request: they stand on the first message, on an empty system message if the
            first is none.
        thinking: the answer begins with reasoning.
        effort: one of the constants' efforts; None is no paragraph. Ignored without thinking.
        drop_thinking: past reasoning leaves the prompt; None is what the constants say. Tools on
            any message switch it off.
        add_generation_prompt: False leaves the assistant's marker out after the last message.

    Raises: ValueError: no message, an unknown role or effort, arguments that are no JSON object.
    """
    if not messages:
        refuse("messages", "none", "at least one")
    if thinking and effort is not None and effort not in constants.efforts:
        refuse("effort", repr(effort), ", ".join(constants.efforts))
    turns = _merged(constants, [_checked(message) for message in messages])
    if tools:
        if turns[0]["role"] != "system":
            turns = [{"role": "system", "content": ""}, *turns]
        turns[0] = turns[0] | {"tools": list(tools)}
    dropping = constants.drop_thinking if drop_thinking is None else drop_thinking
    dropping = dropping and not any(turn.get("tools") for turn in turns)
    if thinking and dropping:
        turns = _without_past(turns)
    last = _last_question(turns)
    text = constants.bos + (constants.efforts.get(effort or "", "") if thinking else "")
    for at, turn in enumerate(turns):
        opens = thinking and (not dropping or at >= last)
        text += _written(constants, turn, thinks=opens)
        following = turns[at + 1]["role"] if at + 1 < len(turns) else None
        answered = following in ("assistant", "latest_reminder") or (
            following is None and add_generation_prompt
        )
        if turn["role"] in ASKING and answered:
            text += constants.assistant + (constants.think_start if opens else constants.think_end)
    return text


def _checked(message: Message) -> Message:
    role = message.get("role")
    if role not in ROLES:
        refuse("role", repr(role), ", ".join(ROLES))
    return dict(message, content=_text(message.get("content")))


def _text(content: str | list[dict[str, Any]] | None) -> str:
    """Text parts are joined by a blank line; a part of another type is named."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = (
        part["text"] if part.get("type") == "text" else f"[Unsupported {part.get('type')}]"
        for part in content
    )
    return "\n\n".join(parts)


def _merged(constants: Constants, messages: Sequence[Message]) -> list[Message]:
    """Tool results and neighbouring user texts as one user message, a blank line between.

    Results stand in the order of the calls of the assistant turn before; an unknown id counts as
    the first call's.
    """
    turns: list[Message] = []
    order: dict[str, int] = {}
    for at, message in enumerate(messages):
        if message["role"] == "assistant" and message.get("tool_calls"):
            order = {call["id"]: i for i, call in enumerate(message["tool_calls"])}
        if message["role"] not in ("user", "tool"):
            turns.append(message)
        elif at == 0 or messages[at - 1]["role"] not in ("user", "tool"):
            turns.append({"role": "user", "content": _joined(constants, messages[at:], order)})
    return turns


def _joined(constants: Constants, messages: Sequence[Message], order: dict[str, int]) -> str:
    """Texts and results at the start of these messages; places of results hold sorted results."""
    run = []
    for message in messages:
        if message["role"] not in ("user", "tool"):
            break
        run.append(message)
    results = [message for message in run if message["role"] == "tool"]
    results.sort(key=lambda message: order.get(message.get("tool_call_id", ""), 0))
    before, after = constants.tool_result
    in_order = iter(results)
    texts = [
        message["content"]
        if message["role"] == "user"
        else before + next(in_order)["content"] + after
        for message in run
    ]
    return "\n\n".join(texts)


def _last_question(turns: Sequence[Message]) -> int:
    return max((at for at, turn in enumerate(turns) if turn["role"] in ASKING), default=-1)


def _without_past(turns: Sequence[Message]) -> list[Message]:
    """Without developer messages before the last question; reasoning is left out in writing."""
    last = _last_question(turns)
    return [turn for at, turn in enumerate(turns) if at >= last or turn["role"] != "developer"]


def _written(constants: Constants, turn: Message, *, thinks: bool) -> str:
    """One message, without the marker that may follow it."""
    role, content = turn["role"], turn["content"]
    if role == "assistant":
        return _answer(constants, turn, thinks=thinks)
    if role == "latest_reminder":
        if constants.latest_reminder is None:
            refuse("role", "'latest_reminder'", "roles that this checkpoint has a marker for")
        return constants.latest_reminder + str(content)
    text: str = content + _tool_section(constants, turn.get("tools") or (), content)
    return (constants.user if role in ASKING else "") + text


def _tool_section(constants: Constants, tools: Sequence[dict[str, Any]], content: str) -> str:
    if not tools:
        return ""
    schemas = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    after_text, after_nothing = constants.tools_after
    section = constants.tools_template.replace("{schemas}", schemas)
    return (after_text if content else after_nothing) + section


def _answer(constants: Constants, turn: Message, *, thinks: bool) -> str:
    """[reasoning · </think> ·] content [· block of calls] · EOS."""
    text: str = (turn.get("reasoning_content") or "") + constants.think_end if thinks else ""
    text += turn["content"]
    calls = turn.get("tool_calls") or ()
    if calls:
        after_text, after_nothing = constants.calls_after
        block = "\n".join(_call(constants.dsml, call["function"]) for call in calls)
        text += after_text if turn["content"] else after_nothing
        text += f"<{constants.dsml}tool_calls>\n{block}\n</{constants.dsml}tool_calls>"
    return text if turn.get("wo_eos") else text + constants.eos


def _call(dsml: str, function: dict[str, Any]) -> str:
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, TypeError) as error:
        refuse("arguments", f"no JSON in the call of {function['name']!r} ({error})", "an object")
    if not isinstance(arguments, dict):
        refuse("arguments", f"JSON {type(arguments).__name__}", "a JSON object")
    lines = []
    for name, value in arguments.items():
        is_text = isinstance(value, str)
        shown = value if is_text else json.dumps(value, ensure_ascii=False)
        flag = "true" if is_text else "false"
        lines.append(f'<{dsml}parameter name="{name}" string="{flag}">{shown}</{dsml}parameter>')
    parameters = "\n".join(lines)
    return f'<{dsml}invoke name="{function["name"]}">\n{parameters}\n</{dsml}invoke>'
