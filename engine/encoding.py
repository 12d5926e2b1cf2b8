"""Messages to the prompt that the model was trained on: DeepSeek-V4's chat encoding.

The rules are V4's; every constant (markers, the wording of the tool section, effort texts) comes
from the checkpoint's encoding.json, so that a checkpoint of the family with other constants needs
no code. Layout, `·` meaning concatenation without newlines:

    BOS · effort · system text · tool section · <User>question · <Assistant></think>answer · EOS · …

Messages are dicts as the API has them, already normalised (`content` is a str):
`role`, `content`, and on assistant turns `reasoning_content`, `tool_calls`, `wo_eos`, on tool
results `tool_call_id`. Nothing is escaped: marker text inside a message becomes that marker.
"""

import json
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from engine.encoding_spec import EncodingSpec
from engine.errors import InvalidRequest
from engine.tokenizer import Tokenizer


class FunctionCall(TypedDict):
    """What an assistant called: `arguments` is a JSON object as text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """One call of an assistant turn."""

    id: str
    function: FunctionCall


class Message(TypedDict):
    """One normalised chat message."""

    role: str
    content: str
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]
    wo_eos: NotRequired[bool]


USER_ROLES = ("user", "developer")


class ChatEncoder:
    """Renders conversations for one checkpoint. Stateless, thread-safe."""

    def __init__(self, spec: EncodingSpec, tokenizer: Tokenizer) -> None:
        self.spec = spec
        self._tokenizer = tokenizer

    def opens_reasoning(self, token_ids: Sequence[int]) -> bool:
        """Whether what follows these tokens is reasoning."""
        return token_ids[-1:] == self._tokenizer.encode(self.spec.think_start)

    def encode(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        *,
        thinking: bool = False,
        effort: str | None = None,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Token ids of `render` with the same arguments."""
        text = self.render(
            messages,
            tools,
            thinking=thinking,
            effort=effort,
            add_generation_prompt=add_generation_prompt,
        )
        return self._tokenizer.encode(text)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        *,
        thinking: bool = False,
        effort: str | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt text.

        Args:
            messages: at least one; tool results may be in any order.
            tools: OpenAI tool objects; only their `function` is shown to the model.
            thinking: the answer starts with reasoning; earlier reasoning is kept by V4's rules.
            effort: one of the checkpoint's `efforts`; None is its default. Ignored in chat mode,
                as the model's own encoder does.
            add_generation_prompt: False leaves out the final assistant marker. There is none
                anyway after a final assistant or system message.

        Raises: InvalidRequest: an unknown role or effort, or arguments that are no JSON object.
        """
        merged = self.merge_tool_results(messages)
        if tools and merged[0]["role"] != "system":
            merged = [{"role": "system", "content": ""}, *merged]
        keep_all = bool(tools) or not self.spec.drop_thinking
        merged, open_from = self.drop_reasoning(merged, thinking=thinking, keep_all=keep_all)
        parts = [self.spec.bos, self.effort_text(effort) if thinking else ""]
        for i, message in enumerate(merged):
            parts.append(self.render_message(message, tools if i == 0 else None))
            following = merged[i + 1]["role"] if i + 1 < len(merged) else None
            if message["role"] in USER_ROLES and (following or add_generation_prompt):
                parts.append(self._tail(following, opens_reasoning=i >= open_from))
        return "".join(parts)

    def render_message(self, message: Message, tools: Sequence[dict[str, Any]] | None) -> str:
        """One message without the assistant marker that may follow it."""
        role, content = message["role"], message["content"]
        if role == "system":
            return content + (self.tool_section(tools, after=content) if tools else "")
        if role in USER_ROLES:
            return self.spec.user + content
        if role == "assistant":
            return self.assistant_turn(message)
        if role == "latest_reminder" and self.spec.latest_reminder is not None:
            return self.spec.latest_reminder + content
        raise InvalidRequest(f"this checkpoint's chat encoding has no role {role!r}")

    def assistant_turn(self, message: Message) -> str:
        """[reasoning · </think> ·] content · tool block · EOS; `wo_eos` marks a turn cut short."""
        parts = []
        if "reasoning_content" in message:
            parts += [message["reasoning_content"], self.spec.think_end]
        parts.append(message["content"])
        if calls := message.get("tool_calls"):
            parts.append(self.call_block(calls, after=message["content"]))
        if not message.get("wo_eos", False):
            parts.append(self.spec.eos)
        return "".join(parts)

    def tool_section(self, tools: Sequence[dict[str, Any]], after: str) -> str:
        """What tells the model its tools: one function a line, in JSON, keys in the given order."""
        schemas = "\n".join(json.dumps(t["function"], ensure_ascii=False) for t in tools)
        section = self.spec.tools
        separator = section.after_text if after else section.after_nothing
        return separator + section.template.replace("{schemas}", schemas)

    def call_block(self, calls: Sequence[ToolCall], after: str) -> str:
        """The block of an assistant's tool calls in DSML."""
        dsml = self.spec.dsml
        invokes = "\n".join(self._invoke(call["function"]) for call in calls)
        separator = self.spec.calls.after_text if after else self.spec.calls.after_nothing
        return f"{separator}<{dsml}tool_calls>\n{invokes}\n</{dsml}tool_calls>"

    def _invoke(self, function: FunctionCall) -> str:
        dsml = self.spec.dsml
        arguments = self._arguments(function)
        parameters = "\n".join(
            f'<{dsml}parameter name="{name}" string="{_is_string(value)}">{_shown(value)}'
            f"</{dsml}parameter>"
            for name, value in arguments.items()
        )
        return f'<{dsml}invoke name="{function["name"]}">\n{parameters}\n</{dsml}invoke>'

    def _arguments(self, function: FunctionCall) -> dict[str, Any]:
        try:
            arguments = json.loads(function["arguments"])
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(
                f"the arguments of the call to {function['name']!r} are not JSON: {error}"
            ) from error
        if not isinstance(arguments, dict):
            raise InvalidRequest(
                f"the arguments of the call to {function['name']!r} are a JSON "
                f"{type(arguments).__name__}, not an object"
            )
        return arguments

    def effort_text(self, effort: str | None) -> str:
        """The paragraph right after BOS that a reasoning effort asks for, in thinking mode."""
        if effort is None:
            return ""
        if effort not in self.spec.efforts:
            known = ", ".join(self.spec.efforts)
            raise InvalidRequest(f"unknown reasoning effort {effort!r}; this model knows: {known}")
        return self.spec.efforts[effort]

    def _tail(self, following: str | None, *, opens_reasoning: bool) -> str:
        """The assistant marker after a user message, where an answer follows or is to follow."""
        if following not in (None, "assistant", "latest_reminder"):
            return ""
        think = self.spec.think_start if opens_reasoning else self.spec.think_end
        return self.spec.assistant + think

    def merge_tool_results(self, messages: Sequence[Message]) -> list[Message]:
        """Tool results as user text, neighbouring user messages as one, a blank line between.

        Results stand in the order of the calls that they answer, whatever order they came in, and
        whatever a user said between them: that stays in its place.
        """
        merged: list[Message] = []
        order: dict[str, int] = {}
        run: list[Message] = []
        for message in messages:
            if message["role"] in ("user", "tool"):
                run.append(message)
                continue
            self._append_run(merged, run, order)
            run = []
            if calls := message.get("tool_calls"):
                order = {call["id"]: i for i, call in enumerate(calls)}
            merged.append(message)
        self._append_run(merged, run, order)
        return merged

    def _append_run(
        self, merged: list[Message], run: Sequence[Message], order: dict[str, int]
    ) -> None:
        """One user message of neighbouring user messages and tool results."""
        if not run:
            return
        results = sorted(
            (message for message in run if message["role"] == "tool"),
            key=lambda message: order.get(message.get("tool_call_id", ""), 0),
        )
        in_order = iter(results)
        texts = [
            message["content"]
            if message["role"] == "user"
            else self._result(next(in_order)["content"])
            for message in run
        ]
        merged.append({"role": "user", "content": "\n\n".join(texts)})

    def _result(self, content: str) -> str:
        return self.spec.tool_result.start + content + self.spec.tool_result.end

    def drop_reasoning(
        self, messages: Sequence[Message], *, thinking: bool, keep_all: bool
    ) -> tuple[list[Message], int]:
        """V4's drop_thinking. Returns the messages, and where turns begin to open reasoning.

        In chat mode no turn shows its reasoning. In thinking mode the reasoning of turns before
        the last question, and developer messages before it, leave the prompt, unless `keep_all`
        (tools are present). Turns that keep reasoning but have none get an empty one.
        """
        last = max((i for i, m in enumerate(messages) if m["role"] in USER_ROLES), default=0)
        first_open = (0 if keep_all else last) if thinking else len(messages)
        result: list[Message] = []
        dropped = 0
        for i, message in enumerate(messages):
            turn = message.copy()
            if turn["role"] == "assistant" and i >= first_open:
                turn["reasoning_content"] = turn.get("reasoning_content", "")
            elif turn["role"] == "assistant":
                turn.pop("reasoning_content", None)
            elif turn["role"] == "developer" and thinking and i < first_open:
                dropped += 1
                continue
            result.append(turn)
        return result, first_open - dropped


def _is_string(value: object) -> str:
    return "true" if isinstance(value, str) else "false"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
