"""Formats of answers and of prompts: what a server accepts must be obeyed, and reach the model.

A response_format binds the answer; a tool or an image that is taken and dropped makes the model
answer another question than was asked. A server that does not have one refuses it in words.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import COUNTING, WEATHER
from fidelity.checks.plumbing_shape import edited
from fidelity.probes.dialogue import user

if TYPE_CHECKING:
    from collections.abc import Callable

    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line

_JSON_TOKENS = 48
_SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
_ANIMALS = ("fox", "owl")
_RECORD = {
    "type": "object",
    "properties": {"animal": {"enum": list(_ANIMALS)}, "count": {"type": "integer"}},
    "required": ["animal", "count"],
    "additionalProperties": False,
}


# ---- response_format


async def _json_object(line: Line) -> Wires:
    wire = await line.chat(
        [user("Describe a red fox in one JSON object.")],
        label="response_format json_object",
        max_tokens=_JSON_TOKENS,
        stream=False,
        temperature=0.0,
        extra={"response_format": {"type": "json_object"}},
    )
    return [wire]


async def _json_schema(line: Line) -> Wires:
    form = {"name": "answer", "schema": _SCHEMA, "strict": True}
    wire = await line.chat(
        COUNTING,
        label="response_format json_schema",
        max_tokens=_JSON_TOKENS,
        stream=False,
        temperature=0.0,
        extra={"response_format": {"type": "json_schema", "json_schema": form}},
    )
    return [wire]


async def _in_both(line: Line) -> Wires:
    form = {"name": "animals", "schema": _RECORD, "strict": True}
    return await together(
        *(
            line.chat(
                [user("How many foxes are there? Answer in JSON.")],
                label=f"json_schema of two fields, {'stream' if stream else 'one-shot'}",
                max_tokens=_JSON_TOKENS,
                stream=stream,
                temperature=0.0,
                extra={"response_format": {"type": "json_schema", "json_schema": form}},
            )
            for stream in (False, True)
        )
    )


def _judge_record(wires: Wires) -> list[str]:
    problems, cut = [], 0
    for wire in wires:
        draft, how = wire.answer(), "stream" if wire.streamed else "one-shot"
        text = "".join(draft.text).strip()
        if draft.finish_reason == "length" and text.startswith("{"):
            cut += 1
            continue
        try:
            value = json.loads(text)
        except ValueError:
            problems.append(f"a schema was given, and the answer is no JSON: {text!r} ({how})")
            continue
        if not _is_record(value):
            problems.append(f"the answer breaks the schema: {text!r} ({how})")
    if cut and not problems:
        raise Undecided(f"{cut} answers were cut before their end")
    return problems


def _is_record(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != {"animal", "count"}:
        return False
    count = value["count"]
    whole = isinstance(count, int) and not isinstance(count, bool)
    return value["animal"] in _ANIMALS and whole


def _prose_in_the_stream(wires: Wires) -> Wires:
    event = {"choices": [{"index": 0, "delta": {"content": "Foxes: "}, "finish_reason": None}]}
    events = [json.dumps(event), *wires[1].stream.data, "[DONE]"]
    return [wires[0], wires[1].with_events(events)]


def _half_a_fox(body: dict[str, Any]) -> None:
    body["choices"][0]["message"]["content"] = '{"animal": "fox", "count": 1.5}'
    body["choices"][0]["finish_reason"] = "stop"


def _judge_object(wires: Wires) -> list[str]:
    """An answer that max_tokens cut must at least have begun as an object."""
    draft = wires[0].answer()
    text = "".join(draft.text).strip()
    if draft.finish_reason == "length":
        return [] if text.startswith("{") or not text else [f"no JSON object begins here: {text!r}"]
    try:
        value = json.loads(text)
    except ValueError:
        return [f"the answer is no JSON: {text!r}"]
    return [] if isinstance(value, dict) else [f"the answer is no object: {text!r}"]


def _judge_schema(wires: Wires) -> list[str]:
    draft = wires[0].answer()
    text = "".join(draft.text).strip()
    if draft.finish_reason == "length" and text.startswith("{"):
        raise Undecided(f"the answer was cut before its end: {text!r}")
    try:
        value = json.loads(text)
    except ValueError:
        return [f"a schema was given, and the answer is no JSON: {text!r}"]
    return [] if value == {"colour": "blue"} else [f"the answer breaks the schema: {text!r}"]


def _prose(body: dict[str, Any]) -> None:
    body["choices"][0]["message"]["content"] = "A red fox is an animal."
    body["choices"][0]["finish_reason"] = "stop"


# ---- tools and parts that a text model cannot have


async def _with_tool(line: Line) -> Wires:
    return await together(
        line.chat(COUNTING, label="without a tool", max_tokens=1, stream=False),
        line.chat(COUNTING, label="with a tool", tools=[WEATHER], max_tokens=1, stream=False),
    )


async def _with_part(line: Line) -> Wires:
    text = {"type": "text", "text": "Describe it."}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXEL}"}}
    return await together(
        line.chat([user([text])], label="a text part", max_tokens=1, stream=False),  # type: ignore[arg-type]
        line.chat([user([text, image])], label="and an image", max_tokens=1, stream=False),  # type: ignore[arg-type]
    )


_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAE"
    "hQGAhKmMIQAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""


def _judge_more(what: str) -> Callable[[Wires], list[str]]:
    """Return a judge of two exchanges: what the second has more must show in its prompt."""

    def judge(wires: Wires) -> list[str]:
        few, many = (wire.answer().usage.get("prompt_tokens") for wire in wires)
        if few is None or many is None:
            raise Undecided("the server tells no usage, so nothing shows what it rendered")
        if many > few:
            return []
        counts = f"{few} prompt tokens without it, {many} with it"
        return [f"{what} is accepted and never reaches the model: {counts}"]

    return judge


def _as_without(wires: Wires) -> Wires:
    if wires[1].status != 200:
        wires = [wires[0], replace(wires[1], status=200)]
    return [wires[0], wires[1].with_json(wires[0].json())]


_DROPPED = Damage(what="the longer prompt is counted as the shorter", apply=_as_without)


FORMATS = (
    Check(
        name="json_object_is_an_object",
        title="response_format json_object gives a JSON object, or is refused",
        collect=_json_object,
        judge=_judge_object,
        damages=(edited("the answer becomes prose", _prose),),
        refusable=True,
    ),
    Check(
        name="json_schema_is_obeyed",
        title="response_format json_schema gives what the schema says, or is refused",
        collect=_json_schema,
        judge=_judge_schema,
        damages=(edited("the answer becomes prose", _prose),),
        refusable=True,
    ),
    Check(
        name="json_schema_of_fields_is_obeyed_in_streams_too",
        title="a schema of two fields binds a stream as it binds one piece, or is refused",
        collect=_in_both,
        judge=_judge_record,
        damages=(
            edited("an integer becomes a fraction", _half_a_fox),
            Damage(what="prose comes before the object of the stream", apply=_prose_in_the_stream),
        ),
        needs=("stream",),
        refusable=True,
        cost_requests=2,
        cost_tokens=140,
    ),
    Check(
        name="tools_are_rendered_or_refused",
        title="a tool that is accepted is part of the prompt",
        collect=_with_tool,
        judge=_judge_more("a tool"),
        damages=(_DROPPED,),
        needs=("usage",),
        refusable=True,
        cost_requests=2,
    ),
    Check(
        name="images_are_read_or_refused",
        title="an image that is accepted is part of the prompt",
        collect=_with_part,
        judge=_judge_more("an image"),
        damages=(_DROPPED,),
        needs=("usage",),
        refusable=True,
        cost_requests=2,
    ),
)
