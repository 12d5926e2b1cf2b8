"""A chat answer as it grows: pieces of text in, OpenAI deltas out, the same ones in every mode."""

import uuid
from collections.abc import Sequence
from typing import Any

from engine.dsml import Delta
from engine.parsers import AnswerParser
from engine.sequence import FinishReason, TokenLogprobs


class Answer:
    """What has been said so far. One per request; not thread-safe."""

    def __init__(self, parser: AnswerParser) -> None:
        self._parser = parser
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self.logprobs: list[TokenLogprobs] = []

    @property
    def complete(self) -> bool:
        """Whether generation may end: as many calls as asked for were made."""
        return self._parser.finished

    def feed(self, text: str, *, last: bool) -> list[dict[str, Any]]:
        """The deltas that this text completes."""
        deltas = self._parser.feed(text)
        if last:
            deltas += self._parser.close()
        return [self._add(delta) for delta in joined(deltas)]

    def message(self) -> dict[str, Any]:
        """The whole answer as an assistant message. Content is null where only calls were made."""
        content = "".join(self._content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content or (None if self._calls else ""),
            "refusal": None,
        }
        if reasoning := "".join(self._reasoning):
            message["reasoning_content"] = reasoning
        if self._calls:
            message["tool_calls"] = self._calls
        return message

    def finish_reason(self, reason: FinishReason) -> str:
        """The reason in OpenAI's words: an answer that ended by itself with calls is a call."""
        return "tool_calls" if self._calls and reason == "stop" else reason

    def _add(self, delta: Delta) -> dict[str, Any]:
        if delta.kind == "reasoning":
            self._reasoning.append(delta.text)
            return {"reasoning_content": delta.text}
        if delta.kind == "content":
            self._content.append(delta.text)
            return {"content": delta.text}
        if delta.kind == "call":
            call = {
                "id": f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": delta.text, "arguments": ""},
            }
            self._calls.append(call)
            opened = call | {"function": {"name": delta.text, "arguments": ""}}
            return {"tool_calls": [{"index": delta.call, **opened}]}
        self._calls[delta.call]["function"]["arguments"] += delta.text
        return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.text}}]}


def joined(deltas: Sequence[Delta]) -> list[Delta]:
    """Neighbouring deltas of one kind and one call as one; a call's announcement stays alone."""
    result: list[Delta] = []
    for delta in deltas:
        last = result[-1] if result else None
        if (
            last is not None
            and delta.kind != "call"
            and (last.kind, last.call) == (delta.kind, delta.call)
        ):
            text = last.text + delta.text
            result[-1] = Delta(kind=last.kind, text=text, call=last.call)
        else:
            result.append(delta)
    return result
