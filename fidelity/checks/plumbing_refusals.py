"""Bad requests: refused with 4xx and an error in words, and the server still answers afterwards."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.plumbing_questions import COUNTING
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fidelity.checks.conformance import Collect, Judge, Wires
    from fidelity.checks.conformance_wire import Line, Wire

_TOKENS = 8
_HALF_A_PAIR = '{"role": "user", "content": "a \\ud83d b"}'
_TEXT_PART = {"type": "text", "text": "Count from 1 to 12."}
_ENDS_SOON = [" ", "\n", "e", "1"]
"""Stop strings of a request that a server may wrongly accept: it must not run on."""


def _body(changes: Mapping[str, Any]) -> Callable[[str], bytes]:
    """Return what writes the body of a plain chat with some fields changed; None drops one."""

    def write(model: str) -> bytes:
        body: dict[str, Any] = {
            "model": model,
            "messages": COUNTING,
            "max_tokens": _TOKENS,
            "temperature": 0,
            "stop": _ENDS_SOON,
        }
        body |= changes
        return json.dumps({k: v for k, v in body.items() if v is not None}).encode()

    return write


def _text(template: str) -> Callable[[str], bytes]:
    return lambda model: template.replace("MODEL", json.dumps(model)).encode()


_REFUSED: dict[str, Callable[[str], bytes]] = {
    "malformed_json": _text('{"model": MODEL, "messages": ['),
    "empty_body": _text(""),
    "body_is_no_object": _text("[1, 2, 3]"),
    "no_messages": _body({"messages": None}),
    "empty_messages": _body({"messages": []}),
    "messages_are_a_text": _body({"messages": "hello"}),
    "message_without_role": _body({"messages": [{"content": "hello"}]}),
    "content_is_a_number": _body({"messages": [{"role": "user", "content": 7}]}),
    "negative_max_tokens": _body({"max_tokens": -5}),
    "max_tokens_is_a_text": _body({"max_tokens": "many"}),
    "huge_max_tokens": _text(
        '{"model": MODEL, "max_tokens": 1e30, "stop": [" ", "1"],'
        ' "messages": [{"role": "user", "content": "Count from 1 to 12."}]}'
    ),
    "negative_temperature": _body({"temperature": -1.5}),
    "temperature_is_a_text": _body({"temperature": "warm"}),
    "top_p_above_one": _body({"top_p": 7.0}),
    "too_many_top_logprobs": _body({"logprobs": True, "top_logprobs": 100_000}),
    "stop_is_a_number": _body({"stop": 5}),
    "tools_are_a_text": _body({"tools": "get_weather"}),
    "stream_is_a_text": _body({"stream": "perhaps"}),
    "n_is_zero": _body({"n": 0}),
    "seed_is_a_text": _body({"seed": "many"}),
    "frequency_penalty_is_a_text": _body({"frequency_penalty": "high"}),
    "unknown_response_format": _body({"response_format": {"type": "no_such_format"}}),
    "unknown_content_part": _body(
        {"messages": [{"role": "user", "content": [_TEXT_PART, {"type": "no_such_part", "a": 1}]}]}
    ),
}
"""Requests that no server can make sense of."""
_LENIENT: dict[str, Callable[[str], bytes]] = {
    "unknown_role": _body({"messages": [{"role": "wizard", "content": "hello"}]}),
    "unpaired_surrogate": _text(
        f'{{"model": MODEL, "max_tokens": 8, "messages": [{_HALF_A_PAIR}]}}'
    ),
    "unknown_field": _body({"no_such_field": {"a": 1}}),
    "deep_nesting": _text('{"model": MODEL, "messages": ' + "[" * 2_000 + "]" * 2_000 + "}"),
    "content_with_nul": _body({"messages": [{"role": "user", "content": "a\x00b"}]}),
}
"""Requests that a server may refuse or answer, but not fail at."""


def _sent(name: str, write: Callable[[str], bytes]) -> Collect:
    async def collect(line: Line) -> Wires:
        bad = await line.post(
            "/chat/completions", write(line.client.server.model), label=name, tokens=_TOKENS
        )
        return [bad, await _afterwards(line, name)]

    return collect


async def _afterwards(line: Line, name: str) -> Wire:
    return await line.chat(
        COUNTING,
        label=f"a good request after {name}",
        max_tokens=1,
        stream=False,
        temperature=0.0,
        copy=zlib.crc32(name.encode()),
    )


async def _other_model(line: Line) -> Wires:
    name = "no-such-model-7f3a"
    bad = await line.post("/chat/completions", _body({})(name), label=f"model {name}", tokens=9)
    return [bad, await _afterwards(line, name)]


async def _other_path(line: Line) -> Wires:
    bad = await line.post("/no/such/path", b"{}", label="unknown path")
    return [bad, await _afterwards(line, "unknown path")]


def _judge_refused(wires: Wires) -> list[str]:
    bad = wires[0]
    if 200 <= bad.status < 300:
        return [f"answered {bad.status}, as if it made sense: {bad.body[:160]!r}", *_alive(wires)]
    return [*_refusal_breaches(bad), *_alive(wires)]


def _judge_lenient(wires: Wires) -> list[str]:
    bad = wires[0]
    if bad.status == 200:
        problems = [] if bad.choice() else [f"200 without a choice: {bad.body[:160]!r}"]
        return [*problems, *_alive(wires)]
    return [*_refusal_breaches(bad), *_alive(wires)]


def _judge_path(wires: Wires) -> list[str]:
    if wires[0].status in {404, 405}:
        return _alive(wires)
    return [f"an unknown path answered {wires[0].status}", *_alive(wires)]


def _refusal_breaches(bad: Wire) -> list[str]:
    if bad.status == 0:
        return [f"no answer: {bad.said!r}"]
    if not 400 <= bad.status < 500:
        return [f"answered {bad.status}, not 4xx: {bad.said!r}"]
    try:
        body = bad.json()
    except shape.Malformed:
        return [f"refused with {bad.status} and no JSON: {bad.body[:120]!r}"]
    # {"error": {"message"}} is OpenAI's; some servers send it flat, FastAPI has "detail"
    error = body.get("error", body)
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail")
    return [] if error else [f"refused with {bad.status} and no message: {bad.body[:120]!r}"]


def _alive(wires: Wires) -> list[str]:
    after = wires[1]
    if after.status == 200 and after.choice():
        return []
    return [f"afterwards a good request was answered {after.status}: {after.said!r}"]


def _status(status: int, body: bytes) -> Damage:
    def apply(wires: Wires) -> Wires:
        return [replace(wires[0], status=status, body=body), *wires[1:]]

    return Damage(what=f"the status becomes {status}", apply=apply)


_FAILED = _status(500, b"Internal Server Error")
_NO_WORDS = _status(400, b"<html>no</html>")


def _refusal(name: str, write: Callable[[str], bytes], judge: Judge, title: str) -> Check:
    return Check(
        name=name,
        title=f"{title}: {name.replace('_', ' ')}",
        collect=_sent(name, write),
        judge=judge,
        damages=(_FAILED, _NO_WORDS),
        cost_tokens=20,
        cost_requests=2,
    )


REFUSALS = (
    *(
        _refusal(name, write, _judge_refused, "refused with 4xx in words")
        for name, write in _REFUSED.items()
    ),
    *(
        _refusal(name, write, _judge_lenient, "refused in words or answered, no failure")
        for name, write in _LENIENT.items()
    ),
    Check(
        name="unknown_model",
        title="a model that the server does not have is refused",
        collect=_other_model,
        judge=_judge_refused,
        damages=(_FAILED,),
        cost_requests=2,
    ),
    Check(
        name="unknown_path",
        title="an unknown path is 404",
        collect=_other_path,
        judge=_judge_path,
        damages=(_status(200, b"{}"),),
        cost_requests=2,
    ),
)
