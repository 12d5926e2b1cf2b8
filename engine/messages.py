"""Chat messages as clients send them, and as the encoder takes them."""

from typing import Any

import msgspec

from engine.encoding import FunctionCall, Message, ToolCall
from engine.errors import InvalidRequest


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class TextPart(_Part, frozen=True, tag_field="type", tag="text"):
    """The only kind of content part: the model reads no images, audio or files."""

    text: str


Content = str | list[TextPart]


class CalledFunction(_Part, frozen=True, kw_only=True):
    """A function that the assistant called.

    `parsed_arguments` is how OpenAI's own client repeats `arguments` when it sends a streamed
    answer back; it is not read.
    """

    name: str
    arguments: str
    parsed_arguments: Any = None


class AssistantCall(_Part, frozen=True, kw_only=True):
    """One tool call of an assistant turn."""

    id: str
    function: CalledFunction
    type: str = "function"
    index: int | None = None


class SystemMessage(_Part, frozen=True, kw_only=True, tag_field="role", tag="system"):
    """Instructions."""

    content: Content
    name: None = None


class DeveloperMessage(_Part, frozen=True, kw_only=True, tag_field="role", tag="developer"):
    """A user turn that leaves the prompt with the next question in thinking mode."""

    content: Content
    name: None = None


class UserMessage(_Part, frozen=True, kw_only=True, tag_field="role", tag="user"):
    """A user turn."""

    content: Content
    name: None = None


class AssistantMessage(_Part, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """An earlier answer. Fields that only ever repeat an answer's nulls are accepted as null."""

    content: Content | None = None
    reasoning_content: str | None = None
    tool_calls: list[AssistantCall] | None = None
    wo_eos: bool = False
    name: None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[None] | None = None
    parsed: None = None


class ToolMessage(_Part, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """The result of one tool call. `name` repeats what `tool_call_id` says, and is not shown."""

    content: Content
    tool_call_id: str
    name: str | None = None


class ReminderMessage(_Part, frozen=True, kw_only=True, tag_field="role", tag="latest_reminder"):
    """V4's reminder; only checkpoints that have its marker take it."""

    content: Content


ChatMessage = (
    SystemMessage
    | DeveloperMessage
    | UserMessage
    | AssistantMessage
    | ToolMessage
    | ReminderMessage
)


class Function(_Part, frozen=True, kw_only=True):
    """What a tool's `function` may hold; the model sees it with its keys in the order given."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Part, frozen=True, kw_only=True):
    """A tool on offer."""

    function: dict[str, Any]
    type: str = "function"


def normalise(messages: list[ChatMessage]) -> list[Message]:
    """The encoder's form: content as one text, empty fields left out.

    Raises: InvalidRequest: an assistant message that says nothing, or a call that is no function.
    """
    return [_normalised(message, i) for i, message in enumerate(messages)]


def _normalised(message: ChatMessage, at: int) -> Message:
    if isinstance(message, AssistantMessage):
        return _assistant(message, at)
    role = type(message).__struct_config__.tag
    result: Message = {"role": str(role), "content": _text(message.content)}
    if isinstance(message, ToolMessage):
        result["tool_call_id"] = message.tool_call_id
    return result


def _assistant(message: AssistantMessage, at: int) -> Message:
    if message.content is None and not message.tool_calls and message.reasoning_content is None:
        raise InvalidRequest(
            f"messages[{at}] is an assistant message without content, reasoning or tool calls."
        )
    content = "" if message.content is None else _text(message.content)
    result: Message = {"role": "assistant", "content": content}
    if message.reasoning_content is not None:
        result["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        result["tool_calls"] = [_call(call, at) for call in message.tool_calls]
    if message.wo_eos:
        result["wo_eos"] = True
    return result


def _call(call: AssistantCall, at: int) -> ToolCall:
    if call.type != "function":
        raise InvalidRequest(f"messages[{at}].tool_calls has type {call.type!r}, not 'function'.")
    function: FunctionCall = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "function": function}


def _text(content: Content) -> str:
    """Parts are joined by a blank line, as V4 joins neighbouring user messages."""
    return content if isinstance(content, str) else "\n\n".join(part.text for part in content)


def checked_tools(tools: list[Tool] | None) -> list[dict[str, Any]]:
    """Tools as the encoder takes them.

    Raises: InvalidRequest: a tool that is no function, or asks for constrained decoding.
    """
    for i, tool in enumerate(tools or []):
        where = f"tools[{i}]"
        if tool.type != "function":
            raise InvalidRequest(f"{where}.type is {tool.type!r}; only 'function' is known.")
        try:
            function = msgspec.convert(tool.function, Function)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"{where}.function: {error}.") from error
        if not function.name:
            raise InvalidRequest(f"{where}.function.name is empty.")
        if function.strict:
            raise InvalidRequest(
                f"{where}.function.strict is not implemented: arguments are not constrained to "
                "the schema; leave it out or send false."
            )
    return [{"type": "function", "function": tool.function} for tool in tools or []]
