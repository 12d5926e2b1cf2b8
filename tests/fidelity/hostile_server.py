"""A real server with named bad behaviours, and one healthy one to measure them against.

`HostileServer("cut_stream")` misbehaves on /chat/completions and /completions; the rest answers as
vLLM would, unless the behaviour is about the rest. Whole although long: one table of behaviours,
each beside the healthy answer that it bends.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from time import time
from typing import Any

from tiny_http import Connection, Request, TinyServer

MODEL = "m"
WORDS = ["The", " sea", " is", " wide", " and", " blue", "."]


def count_tokens(messages: Any) -> int:
    """The tokenizer of this server: four characters a token, plus four a message."""
    return sum(len(str(m.get("content", ""))) // 4 + 4 for m in messages)


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    part = {} if content is None else {"content": content}
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "model": MODEL,
        "choices": [{"index": 0, "delta": part | more, "finish_reason": finish}],
    }


def usage_of(body: dict[str, Any], completion: int) -> dict[str, Any]:
    prompt = body.get("prompt")
    count = count_tokens(body["messages"]) if "messages" in body else len(str(prompt)) // 4 + 1
    return {
        "prompt_tokens": count,
        "completion_tokens": completion,
        "total_tokens": count + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def usage_event(body: dict[str, Any], completion: int) -> dict[str, Any]:
    return {"choices": [], "usage": usage_of(body, completion)}


Behaviour = Callable[["HostileServer", Request, Connection], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


class HostileServer(TinyServer):
    def __init__(self, name: str = "healthy", **knobs: Any) -> None:
        super().__init__()
        self.behave = BEHAVIOURS[name]
        self.knobs = knobs
        self.generations = 0

    async def handle(self, request: Request, connection: Connection) -> None:
        path = request.path.split("?")[0]
        if self.knobs.get("whole_server"):
            await self.behave(self, request, connection)
        elif path.endswith("/models"):
            card = {"id": MODEL, "owned_by": "vllm", "max_model_len": 8192}
            await connection.respond(200, {"object": "list", "data": [card]})
        elif path.endswith("completions"):
            self.generations += 1
            await self.behave(self, request, connection)
        elif path == "/tokenize":
            await self.tokenize(request, connection)
        elif path == "/version":
            await connection.respond(200, {"version": self.knobs.get("version", "1.0")})
        elif path == "/metrics":
            waiting = self.knobs.get("waiting", lambda: 0)()
            await connection.respond(
                200, f"vllm:num_requests_waiting {waiting}\n", {"content-type": "text/plain"}
            )
        else:
            await connection.respond(404, {"detail": "Not Found"})

    async def tokenize(self, request: Request, connection: Connection) -> None:
        body = request.json
        messages = body.get("messages")
        count = count_tokens(messages) if messages else len(body["prompt"]) // 4
        count += self.knobs.get("lie", 0)
        tokens = list(range(count + self.knobs.get("contradiction", 0)))
        await connection.respond(200, {"count": count, "tokens": tokens, "max_model_len": 8192})


@behaviour
async def healthy(server: HostileServer, request: Request, connection: Connection) -> None:
    body = request.json
    words = WORDS[: body.get("max_tokens") or len(WORDS)]
    if not body.get("stream"):
        finish = "stop" if len(words) == len(WORDS) else "length"
        text = "".join(words)
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        answer = {"model": MODEL, "choices": [choice], "usage": usage_of(body, len(words))}
        await connection.respond(200, answer)
        return
    await connection.start()
    await connection.event(delta(role="assistant"))
    for word in words:
        await asyncio.sleep(server.knobs.get("pace_s", 0))
        await connection.event(delta(word))
    await connection.event(delta(finish="stop"))
    if (body.get("stream_options") or {}).get("include_usage"):
        await connection.event(usage_event(body, len(words)))
    await connection.event("[DONE]")
    await connection.end()


# ---- refusals


@behaviour
async def wrong_key(server: HostileServer, request: Request, connection: Connection) -> None:
    """Repeats the key that it refuses, as real servers do."""
    said = f"Incorrect API key provided: {request.headers.get('authorization', 'none')}"
    await connection.respond(401, {"error": {"message": said, "type": "auth"}})


@behaviour
async def unknown_model(server: HostileServer, request: Request, connection: Connection) -> None:
    said = f"The model `{request.json['model']}` does not exist."
    await connection.respond(404, {"error": {"message": said, "code": 404}})


@behaviour
async def not_found(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(404, {"detail": "Not Found"})


@behaviour
async def server_error(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(500, "Internal Server Error", {"content-type": "text/plain"})


@behaviour
async def redirect(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(307, b"", {"location": "https://elsewhere.example/v1"})


@behaviour
async def bad_request(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(400, {"error": {"message": "no such thing", "code": 400}})


# ---- other shapes


@behaviour
async def html(server: HostileServer, request: Request, connection: Connection) -> None:
    page = "<!doctype html><html><body>Welcome to nginx</body></html>"
    await connection.respond(200, page, {"content-type": "text/html"})


@behaviour
async def not_json(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(200, "hello there")


@behaviour
async def deep_json(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(200, "[" * 200_000)


@behaviour
async def no_choices(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(200, {"ok": True})


@behaviour
async def wrong_types(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(200, {"choices": "none", "usage": "much"})


@behaviour
async def negative_usage(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.event(delta("a", "stop"))
    await connection.event({"choices": [], "usage": {"prompt_tokens": -7}})
    await connection.event("[DONE]")
    await connection.end()


@behaviour
async def big_body(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start(headers={"content-type": "application/json"})
    while True:
        await connection.send(b" " * (1 << 20))


@behaviour
async def false_encoding(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.respond(200, {"choices": []}, {"content-encoding": "gzip"})


@behaviour
async def invalid_utf8_body(
    server: HostileServer, request: Request, connection: Connection
) -> None:
    await connection.respond(200, b'{"choices":[{"message":{"content":"\xff\xfe"}}]}')


# ---- broken streams


@behaviour
async def invalid_utf8(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.send(b'data: {"choices":[{"delta":{"content":"\xc3\x28"}}]}\n\n')
    await connection.event("[DONE]")
    await connection.end()


@behaviour
async def lone_surrogate(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.event('{"choices":[{"delta":{"content":"\\ud83d"},"finish_reason":"stop"}]}')
    await connection.event("[DONE]")
    await connection.end()


@behaviour
async def broken_json(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.event(delta("The"))
    await connection.event('{"choices":[{"delta":{"content":"se')
    await connection.event("[DONE]")
    await connection.end()


@behaviour
async def cut_stream(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.event(delta("The"))
    await connection.drop()


@behaviour
async def no_end(server: HostileServer, request: Request, connection: Connection) -> None:
    """Ends cleanly for HTTP, and says neither [DONE] nor why it stopped."""
    await connection.start()
    await connection.event(delta("The"))
    await connection.end()


@behaviour
async def error_in_stream(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.event(delta("The"))
    await connection.event({"error": {"message": "CUDA error", "code": 500}})
    await connection.end()


@behaviour
async def server_abort(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.event(delta("The"))
    await connection.event(delta(finish="abort"))
    await connection.event("[DONE]")
    await connection.end()


# ---- silence and endlessness


@behaviour
async def silent_headers(server: HostileServer, request: Request, connection: Connection) -> None:
    await asyncio.sleep(3600)


@behaviour
async def silent_stream(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.event(delta(role="assistant"))
    await asyncio.sleep(3600)


@behaviour
async def silent_middle(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.event(delta("The"))
    await asyncio.sleep(3600)


@behaviour
async def heartbeats(server: HostileServer, request: Request, connection: Connection) -> None:
    """Comments for ever: alive for TCP, dead for the reader."""
    await connection.start()
    while True:
        await connection.send(b": keep-alive\n\n")
        await asyncio.sleep(0.02)


@behaviour
async def endless(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    while True:
        await connection.event(delta("na "))


@behaviour
async def endless_slow(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    while True:
        await connection.event(delta("na "))
        await asyncio.sleep(0.05)


@behaviour
async def endless_line(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    await connection.send(b"data: ")
    while True:
        await connection.send(b"x" * (1 << 20))


@behaviour
async def no_answer(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.drop()


@behaviour
async def not_http(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.raw(b"SSH-2.0-OpenSSH_9.2\r\n")
    await connection.drop()


# ---- overload


async def _busy(
    server: HostileServer, request: Request, connection: Connection, status: int, after: str | None
) -> None:
    if server.generations > server.knobs.get("times", 10**9):
        await healthy(server, request, connection)
        return
    said = {"error": {"message": "The request queue is full.", "code": status}}
    await connection.respond(status, said, {"retry-after": after} if after else {})


@behaviour
async def busy_429_seconds(server: HostileServer, request: Request, connection: Connection) -> None:
    await _busy(server, request, connection, 429, server.knobs.get("after", "0.1"))


@behaviour
async def busy_429_date(server: HostileServer, request: Request, connection: Connection) -> None:
    # A date has whole seconds: two seconds on leave at least one to wait.
    await _busy(server, request, connection, 429, formatdate(int(time()) + 2, usegmt=True))


@behaviour
async def busy_429(server: HostileServer, request: Request, connection: Connection) -> None:
    await _busy(server, request, connection, 429, None)


@behaviour
async def busy_503(server: HostileServer, request: Request, connection: Connection) -> None:
    await _busy(server, request, connection, 503, None)


@behaviour
async def busy_in_stream(server: HostileServer, request: Request, connection: Connection) -> None:
    """SGLang's way: status 200, and the refusal as the first event."""
    if server.generations > server.knobs.get("times", 10**9):
        await healthy(server, request, connection)
        return
    await connection.start()
    await connection.event({"error": {"message": "The request queue is full.", "code": 503}})
    await connection.event("[DONE]")
    await connection.end()


# ---- unusual, and right


def _whole_stream(newline: bytes = b"\n") -> bytes:
    events = [delta("The"), delta(" séa 🌊"), delta(finish="stop")]
    events.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    lines = [b"\xef\xbb\xbf: hello", b"retry: 10", b""]
    for number, event in enumerate(events):
        text = json.dumps(event, ensure_ascii=False, indent=1).encode()
        lines += [b"event: message", b"id: %d" % number]
        lines += [b"data: " + line for line in text.split(b"\n")]
        lines.append(b"")
    return newline.join([*lines, b"data:[DONE]", b"", b""])


@behaviour
async def crlf(server: HostileServer, request: Request, connection: Connection) -> None:
    """A byte order mark, comments, ids, data over many lines, CRLF, all in one TCP segment."""
    await connection.start()
    await connection.send(_whole_stream(b"\r\n"))
    await connection.end()


@behaviour
async def byte_by_byte(server: HostileServer, request: Request, connection: Connection) -> None:
    await connection.start()
    for byte in _whole_stream(b"\r"):
        await connection.send(bytes([byte]))
    await connection.end()


@behaviour
async def split_surrogates(server: HostileServer, request: Request, connection: Connection) -> None:
    """An emoji whose halves come in two deltas, as servers written in JavaScript send it."""
    await connection.start()
    await connection.event('{"choices":[{"delta":{"content":"\\ud83c"}}]}')
    await connection.event('{"choices":[{"delta":{"content":"\\udf0a"}}]}')
    await connection.event(delta(finish="stop"))
    await connection.event("[DONE]")
    await connection.end()


@behaviour
async def done_without_blank_line(
    server: HostileServer, request: Request, connection: Connection
) -> None:
    await connection.start()
    await connection.send(f"data: {json.dumps(delta('The'))}\n\ndata: [DONE]".encode())
    await connection.end()


@behaviour
async def finish_without_done(
    server: HostileServer, request: Request, connection: Connection
) -> None:
    await connection.start()
    await connection.event(delta("The", "stop"))
    await connection.end()


@behaviour
async def json_for_stream(server: HostileServer, request: Request, connection: Connection) -> None:
    """Asked for a stream, and answered in one piece."""
    request.body = json.dumps(request.json | {"stream": False}).encode()
    await healthy(server, request, connection)
