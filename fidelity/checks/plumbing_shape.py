"""Shapes of answers: the fields of one-shot bodies and of streams, framing, and usage."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided
from fidelity.checks.plumbing_questions import COUNTING_TOKENS, counting
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire

_FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_EARLIEST = 1_500_000_000
"""Of `created`, in seconds: a time in milliseconds or since boot is another unit."""
_LATEST = 10_000_000_000


async def _one_shot(line: Line) -> Wires:
    return [await counting(line, stream=False)]


async def _stream(line: Line) -> Wires:
    return [await counting(line, stream=True)]


async def _bare_stream(line: Line) -> Wires:
    return [await counting(line, stream=True, without=("stream_options",))]


async def _completion(line: Line) -> Wires:
    prompt = "The capital of France is"
    return [await line.complete(prompt, label="completion", max_tokens=4, stream=False)]


async def _models(line: Line) -> Wires:
    named = line.note("model in use", model=line.client.server.model)
    return [await line.get("/models", label="models"), named]


def _head(body: Mapping[str, Any], kind: str) -> list[str]:
    """Return what is wrong with the fields that every body has."""
    problems = []
    if body.get("object") != kind:
        problems.append(f"object is {body.get('object')!r}, not {kind!r}")
    problems += [
        f"{name} is {body.get(name)!r}, not a text"
        for name in ("id", "model")
        if not isinstance(body.get(name), str) or not body[name]
    ]
    created = body.get("created")
    if isinstance(created, bool) or not isinstance(created, int):
        problems.append(f"created is {created!r}, not whole seconds")
    elif not _EARLIEST < created < _LATEST:
        problems.append(f"created is {created}, not a time in seconds")
    return problems


def _accepted(wire: Wire) -> Wire:
    wire.answer()  # raises where the request was refused
    return wire


def _judge_head(kind: str) -> Callable[[Wires], list[str]]:
    return lambda wires: _head(_accepted(wires[0]).json(), kind)


def _judge_choice(wires: Wires) -> list[str]:
    wire = _accepted(wires[0])
    choices = shape.sequence(wire.json().get("choices"), "choices")
    if len(choices) != 1:
        return [f"{len(choices)} choices where one was asked for"]
    choice, message = wire.choice(), wire.message()
    problems = []
    if choice.get("index") != 0:
        problems.append(f"choices[0].index is {choice.get('index')!r}")
    if message.get("role") != "assistant":
        problems.append(f"message.role is {message.get('role')!r}, not 'assistant'")
    if not isinstance(message.get("content"), str) or not message["content"]:
        problems.append(f"message.content is {message.get('content')!r}, not a text")
    if choice.get("finish_reason") not in _FINISH_REASONS:
        problems.append(f"finish_reason is {choice.get('finish_reason')!r}")
    return problems


def _judge_completion(wires: Wires) -> list[str]:
    wire = _accepted(wires[0])
    choice = wire.choice()
    problems = _head(wire.json(), "text_completion")
    if not isinstance(choice.get("text"), str):
        problems.append(f"choices[0].text is {choice.get('text')!r}, not a text")
    if choice.get("finish_reason") not in _FINISH_REASONS:
        problems.append(f"finish_reason is {choice.get('finish_reason')!r}")
    return problems


def _judge_chunks(wires: Wires) -> list[str]:
    events = _accepted(wires[0]).events()
    if not events:
        return ["no event in the stream"]
    problems = [found for event in events for found in _head(event, "chat.completion.chunk")][:1]
    for name in ("id", "created", "model"):
        values = {json.dumps(event.get(name)) for event in events}
        if len(values) > 1:
            problems.append(f"{name} changes within one stream: {sorted(values)[:3]}")
    for event in events:
        indexes = [choice.get("index") for choice in _choices(event)]
        if any(index != 0 for index in indexes):
            problems.append(f"a choice of index {indexes} where one choice was asked for")
            break
    return problems


def _choices(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = shape.sequence(event.get("choices"), "choices")
    return [shape.mapping(choice, "choices[]") for choice in found]


def _judge_framing(wires: Wires) -> list[str]:
    stream = _accepted(wires[0]).stream
    kind = wires[0].headers.get("content-type", "")
    problems = [stream.breach] if stream.breach else []
    if not kind.startswith("text/event-stream"):
        problems.append(f"the stream's content type is {kind!r}")
    if stream.done != 1:
        problems.append(f"[DONE] came {stream.done} times, not once")
    if stream.after_done:
        problems.append(f"{stream.after_done} events behind [DONE]")
    return problems


def _judge_deltas_stream(wires: Wires) -> list[str]:
    """More than one piece: a stream that holds the whole answer in one event is none."""
    draft = _accepted(wires[0]).answer()
    tokens = draft.usage.get("completion_tokens") or 0
    if tokens >= COUNTING_TOKENS // 4 and draft.chunks < 2:
        return [f"{tokens} tokens came in {draft.chunks} piece"]
    return []


def _judge_role(wires: Wires) -> list[str]:
    choices = [c for event in _accepted(wires[0]).events() for c in _choices(event)]
    deltas = [shape.mapping(choice.get("delta"), "delta") for choice in choices]
    roles = [delta["role"] for delta in deltas if delta.get("role") is not None]
    if not deltas or deltas[0].get("role") != "assistant":
        return [f"the first delta has no role 'assistant': {deltas[:1]}"]
    others = sorted({str(role) for role in roles} - {"assistant"})
    return [f"deltas of role {others}"] if others else []


def _judge_finish(wires: Wires) -> list[str]:
    choices = [c for event in _accepted(wires[0]).events() for c in _choices(event)]
    ends = [at for at, choice in enumerate(choices) if choice.get("finish_reason") is not None]
    if len(ends) != 1:
        return [f"a finish_reason came in {len(ends)} chunks, not in one"]
    if choices[ends[0]]["finish_reason"] not in _FINISH_REASONS:
        return [f"finish_reason is {choices[ends[0]]['finish_reason']!r}"]
    late = [c.get("delta") for c in choices[ends[0] + 1 :] if _carries(c)]
    return [f"output after the finish_reason: {late[:2]}"] if late else []


def _carries(choice: Mapping[str, Any]) -> bool:
    delta = shape.mapping(choice.get("delta"), "delta")
    return any(delta.get(name) for name in ("content", "reasoning_content", "tool_calls"))


def _judge_stream_usage(wires: Wires) -> list[str]:
    events = _accepted(wires[0]).events()
    told = [at for at, event in enumerate(events) if event.get("usage")]
    if len(told) != 1:
        return [f"usage came in {len(told)} of {len(events)} chunks, asked for once at the end"]
    later = [event for event in events[told[0] + 1 :] if any(map(_carries, _choices(event)))]
    return ["output came after usage"] if later else []


def _judge_bare(wires: Wires) -> list[str]:
    empty = [event for event in _accepted(wires[0]).events() if not _choices(event)]
    if empty:
        return [f"{len(empty)} chunks without a choice, though no usage was asked for: {empty[0]}"]
    return []


def _judge_models(wires: Wires) -> list[str]:
    if wires[0].status != 200:
        return [f"GET /models answered {wires[0].status}"]
    listed = shape.sequence(wires[0].json().get("data"), "data")
    ids = [shape.mapping(entry, "data[]").get("id") for entry in listed]
    model = wires[1].facts["model"]
    if wires[0].json().get("object") != "list":
        return [f"object is {wires[0].json().get('object')!r}, not 'list'"]
    return [] if model in ids else [f"{model!r} answers and is not listed: {ids[:5]}"]


def edited(what: str, edit: Callable[[dict[str, Any]], None]) -> Damage:
    """Return a damage that changes the body of a one-shot exchange, the first of those given."""

    def apply(wires: Wires) -> Wires:
        body = wires[0].json()
        edit(body)
        return [wires[0].with_json(body), *wires[1:]]

    return Damage(what=what, apply=apply)


def respun(what: str, edit: Callable[[list[str]], list[str]]) -> Damage:
    """Return a damage that changes the events of a stream, the first exchange of those given."""

    def apply(wires: Wires) -> Wires:
        stream = wires[0].stream
        return [wires[0].with_events(edit([*stream.data, "[DONE]"])), *wires[1:]]

    return Damage(what=what, apply=apply)


def with_finish_twice(events: list[str]) -> list[str]:
    """Return the events with the chunk of the finish reason sent twice."""
    at = next(i for i, text in enumerate(events) if '"finish_reason":"' in text.replace(" ", ""))
    return [*events[: at + 1], events[at], *events[at + 1 :]]


def without_delta(events: list[str]) -> list[str]:
    """Return the events without one that carries text."""
    spoken = [i for i, text in enumerate(events) if text != "[DONE]" and _speaks(json.loads(text))]
    if not spoken:
        raise Undecided("the stream carries no text that could be dropped")
    at = spoken[len(spoken) // 2]
    return [*events[:at], *events[at + 1 :]]


def _speaks(event: Mapping[str, Any]) -> bool:
    return any(map(_carries, _choices(event)))


def _without_role(events: list[str]) -> list[str]:
    return [text.replace('"role"', '"rôle"') for text in events]


def _other_id(events: list[str]) -> list[str]:
    body = json.loads(events[1])
    return [events[0], json.dumps({**body, "id": "another"}), *events[2:]]


def _without_usage(events: list[str]) -> list[str]:
    return [text for text in events if '"prompt_tokens"' not in text]


def _without_choices(events: list[str]) -> list[str]:
    return [*events[:-1], json.dumps({**json.loads(events[0]), "choices": []}), events[-1]]


def _unlisted(wires: Wires) -> Wires:
    return [wires[0], replace(wires[1], facts={"model": "another model"})]


SHAPES = (
    Check(
        name="chat_completion_names_itself",
        title="a chat answer has object, id, created and model",
        collect=_one_shot,
        judge=_judge_head("chat.completion"),
        damages=(edited("created is dropped", lambda body: body.pop("created", None)),),
    ),
    Check(
        name="chat_completion_has_one_choice",
        title="a chat answer has one choice: index, role, content and finish_reason",
        collect=_one_shot,
        judge=_judge_choice,
        damages=(edited("the choice is dropped", lambda body: body.update(choices=[])),),
    ),
    Check(
        name="completion_has_its_shape",
        title="an answer of /completions is a text_completion with text and finish_reason",
        collect=_completion,
        judge=_judge_completion,
        needs=("completions",),
        damages=(edited("object is changed", lambda body: body.update(object="chat")),),
    ),
    Check(
        name="models_list_the_model",
        title="/v1/models lists the model that answers",
        collect=_models,
        judge=_judge_models,
        needs=("models",),
        damages=(Damage(what="another model's name is looked for", apply=_unlisted),),
    ),
)
"""Of whole answers."""

STREAMS = (
    Check(
        name="chunks_name_one_answer",
        title="every chunk is a chat.completion.chunk of one id, created and model",
        collect=_stream,
        judge=_judge_chunks,
        damages=(respun("one chunk has another id", _other_id),),
    ),
    Check(
        name="events_are_framed_and_done_once",
        title="a stream is text/event-stream, and ends with one [DONE]",
        collect=_stream,
        judge=_judge_framing,
        damages=(respun("[DONE] is dropped", lambda events: events[:-1]),),
    ),
    Check(
        name="text_comes_in_pieces",
        title="a streamed answer comes in more than one piece",
        collect=_stream,
        judge=_judge_deltas_stream,
    ),
    Check(
        name="first_delta_has_the_role",
        title="the first delta has the role assistant",
        collect=_stream,
        judge=_judge_role,
        damages=(respun("the role is dropped", _without_role),),
    ),
    Check(
        name="finish_reason_comes_once",
        title="one chunk has a finish_reason, and no output comes after it",
        collect=_stream,
        judge=_judge_finish,
        damages=(respun("the chunk of the finish_reason comes twice", with_finish_twice),),
    ),
    Check(
        name="usage_comes_once_when_asked",
        title="with include_usage, usage comes once, and no output after it",
        collect=_stream,
        judge=_judge_stream_usage,
        damages=(respun("the chunk of usage is dropped", _without_usage),),
        feature="usage",
    ),
    Check(
        name="no_chunk_without_choice_unless_usage_is_asked",
        title="without include_usage every chunk has a choice",
        collect=_bare_stream,
        judge=_judge_bare,
        damages=(respun("a chunk without a choice is put in", _without_choices),),
    ),
)
"""Of streams."""
