"""Checks that the embedded engine answers by refusing: shown what a server that obeys would say."""

import json
import re

import pytest

from fidelity.checks.conformance_wire import Refused, Undecided, Wire
from fidelity.checks.plumbing_choices import SEVERAL
from fidelity.checks.plumbing_extensions import EXTENSIONS
from fidelity.checks.plumbing_formats import FORMATS
from fidelity.checks.plumbing_tool_choice import TOOL_CHOICE

CHECKS = {c.name: c for c in (*SEVERAL, *EXTENSIONS, *FORMATS, *TOOL_CHOICE)}
PIECES = ("1", ", ", "2")


def body(choices, tokens=6):
    usage = {"prompt_tokens": 5, "completion_tokens": tokens}
    return {"choices": choices, "usage": usage}


def said(text, *, index=0, reason="stop", **more):
    message = {"role": "assistant", "content": text, **more}
    return {"index": index, "message": message, "finish_reason": reason}


def whole(*choices, tokens=6, sent=None):
    wire = Wire(label="one-shot", path="/chat/completions", sent=sent or {})
    return wire.with_json(body(list(choices), tokens))


def streamed(choices, tokens=6):
    wire = Wire(label="stream", path="/chat/completions", sent={"stream": True})
    events = [{"choices": [choice]} for choice in choices]
    return wire.with_events([*map(json.dumps, [*events, body([], tokens)]), "[DONE]"])


def scored(*pieces):
    return {"content": [{"token": p, "logprob": -0.1, "bytes": list(p.encode())} for p in pieces]}


def chunk(index, text="", *, reason=None, logprobs=None):
    return {
        "index": index,
        "delta": {"content": text},
        "finish_reason": reason,
        "logprobs": logprobs,
    }


def several():
    """Two choices of one text, their chunks in turns, each ended once and all counted."""
    text = "".join(PIECES)
    chunks = [chunk(i, piece, logprobs=scored(piece)) for piece in PIECES for i in (0, 1)]
    ends = [chunk(i, reason="length") for i in (0, 1)]
    one = [said(text, index=i, reason="length") | {"logprobs": scored(*PIECES)} for i in (0, 1)]
    return [streamed([*chunks, *ends], 12), whole(*one, tokens=12)]


def called():
    function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    call = {"id": "1", "type": "function", "function": function}
    return [whole(said(None, reason="stop", tool_calls=[call]))]


def record():
    text = '{"animal": "fox", "count": 3}'
    chunks = [chunk(0, text[:9]), chunk(0, text[9:]), chunk(0, reason="stop")]
    return [whole(said(text)), streamed(chunks)]


def longer():
    asked = {"max_tokens": 12, "min_tokens": 12}
    return [whole(said("no")), whole(said("no no no"), tokens=12, sent=asked)]


OBEYED = {
    **{check.name: several for check in SEVERAL},
    **{check.name: called for check in TOOL_CHOICE},
    "json_schema_of_fields_is_obeyed_in_streams_too": record,
    "min_tokens_matters": longer,
}


@pytest.mark.parametrize("name", OBEYED)
def test_what_is_obeyed_is_no_breach_and_each_damage_is_one(name):
    check, wires = CHECKS[name], OBEYED[name]()
    assert check.judge(wires) == []
    for damage in check.damages:
        assert check.judge(damage.apply(wires)), damage.what


@pytest.mark.parametrize("name", OBEYED)
def test_a_refusal_is_none(name):
    refused = Wire(label="x", path="/chat/completions", status=400, body=b'{"error": "no"}')
    with pytest.raises((Refused, Undecided)):
        CHECKS[name].judge([refused, refused])


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda c: c | {"finish_reason": None}, r"\[\] for finish_reason"),
        (lambda c: c | {"finish_reason": "stop"}, "finish_reason"),
        (lambda c: {**c, "delta": {**c["delta"], "content": "x"}}, "in the stream"),
    ],
    ids=("no end", "ends at once", "other text"),
)
def test_choices_of_a_stream_are_each_whole(edit, told):
    stream, one = several()
    events = [json.loads(text) for text in stream.stream.data]
    for event in events:
        event["choices"] = [edit(c) if c["index"] else c for c in event["choices"]]
    damaged = stream.with_events([*map(json.dumps, events), "[DONE]"])
    (problem, *_) = CHECKS["n_streams_every_choice"].judge([damaged, one])
    assert re.search(told, problem), problem
