"""An answer while it arrives: deltas or one whole body, merged into the fields of a `Reply`.

Knows the spellings in use: reasoning_content and reasoning, usage with and without details, cached
tokens of OpenAI, vLLM, SGLang, DeepSeek and llama.cpp, logprobs of both APIs, tool calls in pieces.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.logprob_shapes import chat_entry, legacy_entries, prompt_entry
from fidelity.endpoint.replies import TokenLogprob
from fidelity.records import ToolCall

_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_MAX_TOOL_CALLS = 256


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Draft:
    """Mutable; one per request. `add` raises `json_shape.Malformed` on a body of another shape."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)
    finish_reason: str = ""
    usage: dict[str, int | None] = field(default_factory=dict)
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None
    chunks: int = 0

    def add(self, body: dict[str, Any]) -> bool:
        """Merge one stream event or one whole body; return True when it carried any output."""
        self._add_usage(body)
        self._add_prompt(body)
        choices = shape.sequence(body.get("choices"), "choices")
        carried = False
        for position, raw in enumerate(choices):
            choice = shape.mapping(raw, f"choices[{position}]")
            if choice.get("index") in (0, None):
                carried = self._add_choice(choice) or carried
        self.chunks += carried
        return carried

    def _add_choice(self, choice: dict[str, Any]) -> bool:
        self._add_prompt(choice)
        if choice.get("finish_reason") is not None:
            self.finish_reason = shape.text(choice["finish_reason"], "finish_reason")
        self._add_logprobs(choice.get("logprobs"))
        ids = choice.get("token_ids")
        if ids is not None:
            found = [shape.whole(item, "token_ids") or 0 for item in shape.sequence(ids, "ids")]
            self.token_ids = (self.token_ids or []) + found
        message = shape.mapping(choice.get("delta", choice.get("message")), "message")
        return self._add_message(message, choice)

    def _add_message(self, message: dict[str, Any], choice: dict[str, Any]) -> bool:
        piece = shape.text(message.get("content"), "content") or shape.text(
            choice.get("text"), "text"
        )
        thought = shape.text(message.get("reasoning_content"), "reasoning_content") or shape.text(
            message.get("reasoning"), "reasoning"
        )
        if piece:
            self.text.append(piece)
        if thought:
            self.reasoning.append(thought)
        calls = shape.sequence(message.get("tool_calls"), "tool_calls")
        for raw in calls:
            self._add_call(shape.mapping(raw, "tool_calls[]"))
        return bool(piece or thought or calls)

    def _add_call(self, raw: dict[str, Any]) -> None:
        identity = shape.text(raw.get("id"), "tool_calls[].id")
        index = shape.whole(raw.get("index"), "tool_calls[].index")
        if index is None:  # servers that omit it start a call with its id or name
            starts = bool(identity) or not self.calls
            index = len(self.calls) if starts else max(self.calls)
        if index not in self.calls and len(self.calls) >= _MAX_TOOL_CALLS:
            raise shape.Malformed(f"more than {_MAX_TOOL_CALLS} tool calls in one answer")
        call = self.calls.setdefault(index, _Call())
        function = shape.mapping(raw.get("function"), "tool_calls[].function")
        call.id = call.id or identity
        call.name += shape.text(function.get("name"), "tool_calls[].function.name")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # some servers send the object instead of its text
            arguments = json.dumps(arguments, ensure_ascii=False)
        call.arguments.append(shape.text(arguments, "tool_calls[].function.arguments"))

    def _add_usage(self, body: dict[str, Any]) -> None:
        usage = shape.mapping(body.get("usage"), "usage")
        timings = body.get("timings")
        if usage:
            self.usage.update({k: v for k, v in read_usage(usage).items() if v is not None})
        if isinstance(timings, dict) and "cache_n" in timings:
            self.usage.setdefault("cached_tokens", shape.whole(timings["cache_n"], "cache_n"))

    def _add_prompt(self, body: dict[str, Any]) -> None:
        if body.get("prompt_token_ids") is not None:
            ids = shape.sequence(body["prompt_token_ids"], "prompt_token_ids")
            self.prompt_token_ids = [shape.whole(item, "prompt_token_ids") or 0 for item in ids]
        if body.get("prompt_logprobs") is not None:
            entries = shape.sequence(body["prompt_logprobs"], "prompt_logprobs")
            self.prompt_logprobs = [prompt_entry(entry) for entry in entries]

    def _add_logprobs(self, raw: Any) -> None:
        if raw is None:
            return
        block = shape.mapping(raw, "logprobs")
        if "content" in block or "token_logprobs" not in block:
            content = shape.sequence(block.get("content"), "logprobs.content")
            found = [chat_entry(entry) for entry in content]
        else:
            found = legacy_entries(block)
        self.logprobs = (self.logprobs or []) + found

    def texts(self, *, inline_think: bool) -> tuple[str, str]:
        """Return (content, reasoning), with inline <think> split off when the server does so."""
        content = shape.whole_text("".join(self.text), "content")
        reasoning = shape.whole_text("".join(self.reasoning), "reasoning")
        return split_think(content, reasoning) if inline_think else (content, reasoning)

    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return the merged calls in index order; arguments stay the server's own text."""
        return tuple(
            ToolCall(
                id=call.id,
                name=shape.whole_text(call.name, "name"),
                arguments=shape.whole_text("".join(call.arguments), "arguments"),
            )
            for _, call in sorted(self.calls.items())
        )


def read_usage(usage: dict[str, Any]) -> dict[str, int | None]:
    """Return the token counts of a usage object under our names; absent ones are None."""
    prompt = shape.mapping(usage.get("prompt_tokens_details"), "usage.prompt_tokens_details")
    completion = shape.mapping(
        usage.get("completion_tokens_details"), "usage.completion_tokens_details"
    )
    cached = [prompt.get("cached_tokens")]
    cached += [usage.get("cached_tokens"), usage.get("prompt_cache_hit_tokens")]
    reasoning = [completion.get("reasoning_tokens"), usage.get("reasoning_tokens")]
    return {
        "prompt_tokens": shape.whole(usage.get("prompt_tokens"), "usage.prompt_tokens"),
        "completion_tokens": shape.whole(usage.get("completion_tokens"), "usage.completion_tokens"),
        "cached_tokens": shape.whole(_first(cached), "usage cached_tokens"),
        "reasoning_tokens": shape.whole(_first(reasoning), "usage reasoning_tokens"),
    }


def split_think(content: str, reasoning: str) -> tuple[str, str]:
    """Split an inline think block off the content.

    The opening mark may stand in the prompt, so that the answer holds the closing one alone; a
    block that is never closed is reasoning to its end.
    """
    stripped = content.lstrip()
    opened = stripped.startswith(_THINK_OPEN)
    if not opened and _THINK_CLOSE not in content:
        return content, reasoning
    inner = stripped.removeprefix(_THINK_OPEN) if opened else content
    thought, _, answer = inner.partition(_THINK_CLOSE)
    return answer.lstrip("\n"), reasoning + thought


def _first(values: list[Any]) -> Any:
    return next((value for value in values if value is not None), None)
