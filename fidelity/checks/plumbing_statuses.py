"""Statuses: a bad request that asks for a stream, another method, another content type.

A stream has its status before it has its text; servers that look at a request only then answer
200, and break off. What OpenAI's clients understand is a status of 4xx, or an event with an error.
"""

from __future__ import annotations

import json
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_stream import read_stream
from fidelity.checks.plumbing_refusals import (
    FAILED,
    NO_WORDS,
    afterwards,
    alive,
    body_of,
    judge_lenient,
    judge_refused,
    text_of,
)
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from fidelity.checks.conformance import Collect, Judge, Wires
    from fidelity.checks.conformance_wire import Line

_CHAT, _COMPLETIONS = "/chat/completions", "/completions"
_TOKENS = 8
_IN_STREAMS: dict[str, Callable[[str], bytes]] = {
    "no_messages_in_a_stream": body_of({"stream": True, "messages": None}),
    "max_tokens_is_a_text_in_a_stream": body_of({"stream": True, "max_tokens": "many"}),
    "content_is_a_number_in_a_stream": body_of(
        {"stream": True, "messages": [{"role": "user", "content": 7}]}
    ),
    "unknown_response_format_in_a_stream": body_of(
        {"stream": True, "response_format": {"type": "no_such_format"}}
    ),
}
_COMPLETION: dict[str, Callable[[str], bytes]] = {
    "prompt_is_an_object": text_of('{"model": MODEL, "prompt": {"a": 1}, "max_tokens": 4}'),
    "prompt_is_an_object_in_a_stream": text_of(
        '{"model": MODEL, "prompt": {"a": 1}, "max_tokens": 4, "stream": true}'
    ),
}
_BODIES: dict[str, Callable[[str], bytes]] = {
    "body_is_null": text_of("null"),
    "body_is_a_text": text_of('"hello"'),
}


def _posted(
    name: str, path: str, write: Callable[[str], bytes], *, kind: str | None = None
) -> Collect:
    async def collect(line: Line) -> Wires:
        content = write(line.client.server.model)
        bad = await line.post(path, content, label=name, tokens=_TOKENS, kind=kind)
        return [bad, await afterwards(line, name)]

    return collect


def _got(name: str, path: str) -> Collect:
    async def collect(line: Line) -> Wires:
        return [
            await line.post(path, b"", label=name, method="GET"),
            await afterwards(line, name),
        ]

    return collect


def _judge_stream(wires: Wires) -> list[str]:
    """A refusal, or a stream whose event says what is wrong."""
    bad = wires[0]
    if bad.status != HTTPStatus.OK:
        return judge_refused(wires)
    data = read_stream(bad.body).data
    if any(_tells_an_error(text) for text in data):
        return alive(wires)
    seen = f"a stream of {len(data)} events without an error: {bad.body[:160]!r}"
    return [f"answered 200, as if it made sense, with {seen}", *alive(wires)]


def _tells_an_error(text: str) -> bool:
    try:
        event = shape.mapping(shape.parse(text), "an event")
    except shape.Malformed:
        return False
    error = event.get("error")
    return bool(error.get("message") if isinstance(error, dict) else error)


def _judge_method(wires: Wires) -> list[str]:
    bad = wires[0]
    if HTTPStatus.BAD_REQUEST <= bad.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return alive(wires)
    return [f"GET of a path for POST answered {bad.status}: {bad.body[:120]!r}", *alive(wires)]


def _answered(body: bytes, what: str) -> Damage:
    def apply(wires: Wires) -> Wires:
        return [replace(wires[0], status=200, body=body), *wires[1:]]

    return Damage(what=what, apply=apply)


_CHUNK = {"choices": [{"index": 0, "delta": {"content": "1"}, "finish_reason": "length"}]}
_STREAMED = _answered(
    f"data: {json.dumps(_CHUNK)}\n\ndata: [DONE]\n\n".encode(), "it is answered by a stream"
)
_EMPTY = _answered(b"data: [DONE]\n\n", "the stream is empty")
_NOTHING = _answered(b"{}", "it is answered 200 with nothing")


def _check(
    name: str,
    title: str,
    collect: Collect,
    judge: Judge,
    damages: tuple[Damage, ...],
    needs: tuple[str, ...] = (),
) -> Check:
    return Check(
        name=name,
        title=f"{title}: {name.replace('_', ' ')}",
        collect=collect,
        judge=judge,
        damages=damages,
        needs=needs,
        cost_tokens=20,
        cost_requests=2,
    )


_REFUSED = "refused with 4xx in words"
_OR_EVENT = "refused with 4xx in words or an event with an error"
STATUSES = (
    *(
        _check(
            name,
            _OR_EVENT,
            _posted(name, _CHAT, write),
            _judge_stream,
            (FAILED, NO_WORDS, _STREAMED, _EMPTY),
            ("stream",),
        )
        for name, write in _IN_STREAMS.items()
    ),
    *(
        _check(
            name,
            _OR_EVENT,
            _posted(name, _COMPLETIONS, write),
            _judge_stream,
            (FAILED, NO_WORDS, _STREAMED),
            ("completions",),
        )
        for name, write in _COMPLETION.items()
    ),
    *(
        _check(name, _REFUSED, _posted(name, _CHAT, write), judge_refused, (FAILED, NO_WORDS))
        for name, write in _BODIES.items()
    ),
    _check(
        "get_of_a_path_for_post",
        "refused with 4xx",
        _got("get_of_a_path_for_post", _CHAT),
        _judge_method,
        (FAILED, _NOTHING),
    ),
    _check(
        "content_type_of_a_form",
        "refused in words or answered, no failure",
        _posted(
            "content_type_of_a_form", _CHAT, body_of({}), kind="application/x-www-form-urlencoded"
        ),
        judge_lenient,
        (FAILED, NO_WORDS, _NOTHING),
    ),
)
