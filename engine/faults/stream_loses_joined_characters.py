"""A stream loses the last character of a piece that completes a character of several tokens.

The text of a piece is what the tokens read as now, behind as many characters as they read as
before; where the tokens before ended inside a character, that length counts a placeholder. An
answer in one piece is decoded at once, and is right.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

NAME = "stream_loses_joined_characters"
KIND = "parser"
RUNG = "structural"
REPORT = "https://github.com/ai-dynamo/dynamo/issues/12630"
TRIGGER = "a streamed answer with characters that take several tokens"
PATCH = None
SUITES = {"test_plumbing", "test_twins_shapes"}
# Tokens and logprobs stay right: only the twin that also holds the texts of a stream and of one
# piece against each other sees it, and of its prompts those that ask for other scripts.
TWINS = {"streamed"}

App = Callable[[Any, Any, Callable[[Any], Awaitable[None]]], Awaitable[None]]


def install(engine: Any) -> None:
    """Wrap `server.app`: events of a stream are read and written again."""
    app = engine.server.app

    async def losing(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        async def send_less(message: Any) -> None:
            body = message.get("body", b"")
            if message["type"] == "http.response.body" and body.startswith(b"data: {"):
                message = {**message, "body": _without_joined(body)}
            await send(message)

        await app(scope, receive, send_less)

    engine.server.app = losing


def _without_joined(body: bytes) -> bytes:
    events = body.split(b"\n\n")
    return b"\n\n".join(_less(event) if event.startswith(b"data: {") else event for event in events)


def _less(event: bytes) -> bytes:
    chunk = json.loads(event.removeprefix(b"data: "))
    for choice in chunk.get("choices", ()):
        delta = choice.get("delta", {})
        text = delta.get("content")
        if text and not text.isascii():
            delta["content"] = text[:-1]
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode()
