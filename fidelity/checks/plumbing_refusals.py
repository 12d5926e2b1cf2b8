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


def body_of(changes: Mapping[str, Any]) -> Callable[[str], bytes]:
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


def text_of(template: str) -> Callable[[str], bytes]:
    """Return what writes a body from a template; MODEL is the model's name."""
    return lambda model: template.replace("MODEL", json.dumps(model)).encode()


_REFUSED: dict[str, Callable[[str], bytes]] = {
    "malformed_json": text_of('{"model": MODEL, "messages": ['),
    "empty_body": text_of(""),
    "body_is_no_object": text_of("[1, 2, 3]"),
    "no_messages": body_of({"messages": None}),
    "empty_messages": body_of({"messages": []}),
    "messages_are_a_text": body_of({"messages": "hello"}),
    "message_without_role": body_of({"messages": [{"content": "hello"}]}),
    "content_is_a_number": body_of({"messages": [{"role": "user", "content": 7}]}),
    "negative_max_tokens": body_of({"max_tokens": -5}),
    "max_tokens_is_a_text": body_of({"max_tokens": "many"}),
    "huge_max_tokens": text_of(
        '{"model": MODEL, "max_tokens": 1e30, "stop": [" ", "1"],'
        ' "messages": [{"role": "user", "content": "Count from 1 to 12."}]}'
    ),
    "negative_temperature": body_of({"temperature": -1.5}),
    "temperature_is_a_text": body_of({"temperature": "warm"}),
    "top_p_above_one": body_of({"top_p": 7.0}),
    "too_many_top_logprobs": body_of({"logprobs": True, "top_logprobs": 100_000}),
    "stop_is_a_number": body_of({"stop": 5}),
    "tools_are_a_text": body_of({"tools": "get_weather"}),
    "stream_is_a_text": body_of({"stream": "perhaps"}),
    "n_is_zero": body_of({"n": 0}),
    "seed_is_a_text": body_of({"seed": "many"}),
    "frequency_penalty_is_a_text": body_of({"frequency_penalty": "high"}),
    "unknown_response_format": body_of({"response_format": {"type": "no_such_format"}}),
    "unknown_content_part": body_of(
        {"messages": [{"role": "user", "content": [_TEXT_PART, {"type": "no_such_part", "a": 1}]}]}
    ),
}
"""Requests that no server can make sense of."""
_LENIENT: dict[str, Callable[[str], bytes]] = {
    "unknown_role": body_of({"messages": [{"role": "wizard", "content": "hello"}]}),
    "unpaired_surrogate": text_of(
        f'{{"model": MODEL, "max_tokens": 8, "messages": [{_HALF_A_PAIR}]}}'
    ),
    "unknown_field": body_of({"no_such_field": {"a": 1}}),
    "deep_nesting": text_of('{"model": MODEL, "messages": ' + "[" * 2_000 + "]" * 2_000 + "}"),
    "content_with_nul": body_of({"messages": [{"role": "user", "content": "a\x00b"}]}),
}
"""Requests that a server may refuse or answer, but not fail at."""


def _sent(name: str, write: Callable[[str], bytes]) -> Collect:
    async def collect(line: Line) -> Wires:
        bad = await line.post(
            "/chat/completions", write(line.client.server.model), label=name, tokens=_TOKENS
        )
        return [bad, await afterwards(line, name)]

    return collect


async def afterwards(line: Line, name: str) -> Wire:
    """Ask a good request behind a bad one."""
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
    bad = await line.post("/chat/completions", body_of({})(name), label=f"model {name}", tokens=9)
    return [bad, await afterwards(line, name)]


async def _other_path(line: Line) -> Wires:
    bad = await line.post("/no/such/path", b"{}", label="unknown path")
    return [bad, await afterwards(line, "unknown path")]


def judge_refused(wires: Wires) -> list[str]:
    """Of a bad request and a good one behind it: refused in words, answered."""
    bad = wires[0]
    if 200 <= bad.status < 300:
        return [f"answered {bad.status}, as if it made sense: {bad.body[:160]!r}", *alive(wires)]
    return [*refusal_breaches(bad), *alive(wires)]


def judge_lenient(wires: Wires) -> list[str]:
    """Of a doubtful request and a good one behind it: a failure alone is wrong."""
    bad = wires[0]
    if bad.status == 200:
        problems = [] if bad.choice() else [f"200 without a choice: {bad.body[:160]!r}"]
        return [*problems, *alive(wires)]
    return [*refusal_breaches(bad), *alive(wires)]


def _judge_path(wires: Wires) -> list[str]:
    if wires[0].status in {404, 405}:
        return alive(wires)
    return [f"an unknown path answered {wires[0].status}", *alive(wires)]


def refusal_breaches(bad: Wire) -> list[str]:
    """Return what a refusal lacks: a status of 4xx, JSON, a message."""
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


def alive(wires: Wires) -> list[str]:
    """Return a breach when the good request behind the bad one was not answered."""
    after = wires[1]
    if after.status == 200 and after.choice():
        return []
    return [f"afterwards a good request was answered {after.status}: {after.said!r}"]


def _status(status: int, body: bytes) -> Damage:
    def apply(wires: Wires) -> Wires:
        return [replace(wires[0], status=status, body=body), *wires[1:]]

    return Damage(what=f"the status becomes {status}", apply=apply)


FAILED = _status(500, b"Internal Server Error")
NO_WORDS = _status(400, b"<html>no</html>")


def _refusal(name: str, write: Callable[[str], bytes], judge: Judge, title: str) -> Check:
    return Check(
        name=name,
        title=f"{title}: {name.replace('_', ' ')}",
        collect=_sent(name, write),
        judge=judge,
        damages=(FAILED, NO_WORDS),
        cost_tokens=20,
        cost_requests=2,
    )


REFUSALS = (
    *(
        _refusal(name, write, judge_refused, "refused with 4xx in words")
        for name, write in _REFUSED.items()
    ),
    *(
        _refusal(name, write, judge_lenient, "refused in words or answered, no failure")
        for name, write in _LENIENT.items()
    ),
    Check(
        name="unknown_model",
        title="a model that the server does not have is refused",
        collect=_other_model,
        judge=judge_refused,
        damages=(FAILED,),
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
