"""Messages at the edge of the server: what came in, and what the model said, as OpenAI has them."""

import json
import secrets
from collections.abc import Sequence
from typing import Any

from reference.arguments import refuse
from reference.encoding_constants import Constants
from reference.parser import parse

Json = dict[str, Any]


def assistant_message(constants: Constants, text: str, *, thinking: bool, ended: bool) -> Json:
    """The strict parser's reading; what it refuses is content, behind the reasoning."""
    try:
        answer = parse(constants, text + constants.eos * ended, thinking=thinking)
    except ValueError:
        before, end, after = text.partition(constants.think_end)
        parts = (before, after) if end else (text, "")
        reasoning, content = parts if thinking else (None, text)
        return {"role": "assistant", "content": content, "reasoning_content": reasoning}
    message: Json = {"role": "assistant", "content": answer.content}
    message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "index": place,
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(answer.calls)
        ]
    return message


def refuse_other_parts(messages: Sequence[Json]) -> None:
    """The model reads text only: an image is refused, and not named in its place."""
    contents = (message.get("content") for message in messages)
    for part in (part for content in contents if isinstance(content, list) for part in content):
        if not isinstance(part, dict) or part.get("type") != "text":
            refuse("content", f"a part {json.dumps(part)[:80]}", "parts of type text")
