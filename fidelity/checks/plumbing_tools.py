"""Tool calls and reasoning: parsed, kept apart from content, and read back from the history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import (
    THINKING_TOKENS,
    WEATHER,
    WEATHER_QUESTIONS,
    thinking,
    weather,
)
from fidelity.checks.plumbing_shape import edited
from fidelity.endpoint import json_shape as shape
from fidelity.probes.dialogue import called, user

if TYPE_CHECKING:
    from fidelity.checks.conformance import Judge, Wires
    from fidelity.checks.conformance_wire import Line, Wire
    from fidelity.probes.dialogue import Message

_NAME = "get_weather"
_ARGUMENT = "city"
_MARKS = ("<think>", "</think>", "<reasoning>", "</reasoning>", "<|channel|>")
_FEW_TOKENS = 5
_FORBIDDEN_TOKENS = 32


# ---- tool calls


async def _asked(line: Line) -> Wires:
    return await together(*(weather(line, stream=False, question=q) for q in (0, 1)))


async def _streamed(line: Line) -> Wires:
    return await together(*(weather(line, stream=True, question=q) for q in (0, 1)))


def _each_call(judge: Judge) -> Judge:
    """Judge the exchanges that hold a call; a call left in the text is a breach of its own."""

    def judged(wires: Wires) -> list[str]:
        problems: list[str] = []
        with_call = [wire for wire in wires if wire.answer().calls]
        for wire in wires:
            problems += _call_in_text(wire)
        if not with_call and not problems:
            raise Undecided("the model called no tool, though the questions ask for one")
        return problems + [problem for wire in with_call for problem in judge([wire])]

    return judged


def _call_in_text(wire: Wire) -> list[str]:
    """Find a whole, well-formed call that stands in the content instead of tool_calls."""
    draft = wire.answer()
    text = "".join(draft.text)
    cut = draft.finish_reason == "length"
    if cut or draft.calls or _NAME not in text or not _is_call(text):
        return []
    return [f"the call stands in the content: {text[:160]!r}"]


def _is_call(text: str) -> bool:
    start, end = text.find("{"), text.rfind("}")
    try:
        body = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except ValueError:
        body = None
    named = isinstance(body, dict) and body.get("name") == _NAME and len(body) > 1
    marked = f'name="{_NAME}"' in text and "</" in text
    return named or marked


def _judge_call(wires: Wires) -> list[str]:
    wire = wires[0]
    if wire.choice().get("finish_reason") != "tool_calls":
        return [f"a tool was called, and finish_reason is {wire.choice().get('finish_reason')!r}"]
    problems = []
    content = wire.message().get("content")
    if content is not None and not isinstance(content, str):
        problems.append(f"content beside a tool call is {content!r}")
    for raw in shape.sequence(wire.message().get("tool_calls"), "tool_calls"):
        call = shape.mapping(raw, "tool_calls[]")
        if not isinstance(call.get("id"), str) or not call["id"]:
            problems.append(f"a tool call has the id {call.get('id')!r}")
        if call.get("type") != "function":
            problems.append(f"a tool call has the type {call.get('type')!r}")
    return problems


def _judge_arguments(wires: Wires) -> list[str]:
    problems = []
    for call in wires[0].answer().tool_calls():
        if call.name != _NAME:
            problems.append(f"{call.name!r} was called, and {_NAME!r} is the only tool")
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            problems.append(f"arguments are no JSON: {call.arguments[:120]!r}")
            continue
        if not isinstance(arguments, dict):
            problems.append(f"arguments are {arguments!r:.120}, not an object")
        elif not isinstance(arguments.get(_ARGUMENT), str):
            problems.append(f"the required argument {_ARGUMENT!r} is missing: {arguments!r:.120}")
    raw = shape.sequence(wires[0].message().get("tool_calls"), "tool_calls")
    given = [shape.mapping(c, "call").get("function", {}).get("arguments") for c in raw]
    if any(not isinstance(value, str) for value in given):
        problems.append(f"arguments are not given as a text: {given!r:.120}")
    return problems


def _judge_deltas(wires: Wires) -> list[str]:
    """A call's first delta has its id and name, every delta its index; no text of it is content."""
    problems: list[str] = []
    seen: set[int] = set()
    finish = ""
    for event in wires[0].events():
        for choice in shape.sequence(event.get("choices"), "choices"):
            finish = choice.get("finish_reason") or finish
            delta = shape.mapping(choice.get("delta"), "delta")
            for call in shape.sequence(delta.get("tool_calls"), "tool_calls"):
                problems += _delta_breaches(call, seen)
    if finish != "tool_calls":
        problems.append(f"a tool was called, and finish_reason is {finish!r}")
    for call in wires[0].answer().tool_calls():
        try:
            json.loads(call.arguments)
        except ValueError:
            problems.append(f"the deltas add up to no JSON: {call.arguments[:120]!r}")
    return problems[:2]


def _delta_breaches(call: dict[str, Any], seen: set[int]) -> list[str]:
    index = call.get("index")
    if not isinstance(index, int):
        return [f"a delta of a tool call has the index {index!r}"]
    function = shape.mapping(call.get("function"), "function")
    if index in seen:
        return []
    seen.add(index)
    if not call.get("id") or not function.get("name"):
        return [f"the first delta of call {index} lacks id or name: {call!r:.120}"]
    return []


async def _forbidden(line: Line) -> Wires:
    return await together(
        *(
            line.chat(
                [user(WEATHER_QUESTIONS[0])],
                label=f"tool_choice none, {'stream' if stream else 'one-shot'}",
                tools=[WEATHER],
                extra={"tool_choice": "none"},
                max_tokens=_FORBIDDEN_TOKENS,
                stream=stream,
                temperature=0.0,
            )
            for stream in (False, True)
        )
    )


def _judge_forbidden(wires: Wires) -> list[str]:
    for wire in wires:
        draft = wire.answer()
        if draft.calls or draft.finish_reason == "tool_calls":
            names = [call.name for call in draft.tool_calls()]
            return [f"tool_choice 'none', and {names} were called"]
    return []


_DEGREES = ("17", "24", "31")


def _weather_said(degrees: str) -> list[Message]:
    return called(_NAME, {_ARGUMENT: "Paris"}, f'{{"temp": {degrees}}}', call_id="call_w")


async def _results(line: Line) -> Wires:
    return await together(
        *(
            line.chat(
                [
                    user(WEATHER_QUESTIONS[0]),
                    *called(
                        _NAME, {_ARGUMENT: "Paris"}, f'{{"temp": {degrees}}}', call_id="call_w"
                    ),
                ],
                label=f"tool result {degrees}",
                tools=[WEATHER],
                max_tokens=48,
                temperature=0.0,
                stream=False,
            )
            for degrees in _DEGREES
        )
    )


def _judge_results(wires: Wires) -> list[str]:
    texts = ["".join(w.answer().text) + "".join(w.answer().reasoning) for w in wires]
    read = [degrees in text for degrees, text in zip(_DEGREES, texts, strict=True)]
    if any(read):
        return []
    if len(set(texts)) == 1 and texts[0]:
        return [f"results {_DEGREES} of a tool, and each time the answer is {texts[0][:120]!r}"]
    raise Undecided("the answers name none of the results, and differ: the model may not know how")


def _results_ignored(wires: Wires) -> Wires:
    body = wires[0].json()
    body["choices"][0]["message"]["content"] = "It is warm in Paris."
    return [wire.with_json(body) for wire in wires]


def _as_stop(body: dict[str, Any]) -> None:
    body["choices"][0]["finish_reason"] = "stop"


def _half_arguments(body: dict[str, Any]) -> None:
    for call in body["choices"][0]["message"].get("tool_calls") or ():
        call["function"]["arguments"] = call["function"]["arguments"][:-2]


def _late_name(wires: Wires) -> Wires:
    events = [json.loads(text) for text in wires[0].stream.data]
    for event in events:
        for choice in event.get("choices", ()):
            for call in choice.get("delta", {}).get("tool_calls") or ():
                call.get("function", {}).pop("name", None)
    return [wires[0].with_events([*map(json.dumps, events), "[DONE]"]), *wires[1:]]


def _called_after_all(wires: Wires) -> Wires:
    body = wires[0].json()
    function = {"name": _NAME, "arguments": "{}"}
    body["choices"][0]["message"]["tool_calls"] = [{"id": "1", "function": function}]
    return [wires[0].with_json(body), *wires[1:]]


TOOLS = (
    Check(
        name="call_says_so",
        title="an answer with a tool call says finish_reason tool_calls, with id and type",
        collect=_asked,
        judge=_each_call(_judge_call),
        damages=(edited("finish_reason says stop", _as_stop),),
        needs=("tools",),
        cost_requests=2,
        cost_tokens=140,
    ),
    Check(
        name="arguments_are_json_of_the_schema",
        title="arguments are a text of JSON with what the schema requires",
        collect=_asked,
        judge=_each_call(_judge_arguments),
        damages=(edited("arguments are cut", _half_arguments),),
        needs=("tools",),
        cost_requests=2,
        cost_tokens=140,
    ),
    Check(
        name="deltas_rebuild_the_call",
        title="deltas of a call carry index, id and name, and add up to JSON",
        collect=_streamed,
        judge=_each_call(_judge_deltas),
        damages=(Damage(what="the name is dropped from the deltas", apply=_late_name),),
        needs=("tools", "stream"),
        cost_requests=2,
        cost_tokens=140,
    ),
    Check(
        name="tool_choice_none_forbids",
        title="with tool_choice none no tool is called",
        collect=_forbidden,
        judge=_judge_forbidden,
        damages=(Damage(what="a call is put in", apply=_called_after_all),),
        needs=("tools",),
        optional=True,
        cost_requests=2,
    ),
    Check(
        name="result_is_read",
        title="what a tool returned is in the answer",
        collect=_results,
        judge=_judge_results,
        damages=(Damage(what="answers name no result", apply=_results_ignored),),
        needs=("tools",),
        cost_requests=3,
        cost_tokens=420,
    ),
)


# ---- reasoning


async def _thought(line: Line) -> Wires:
    return await together(thinking(line, stream=False), thinking(line, stream=True))


async def _cut_thought(line: Line) -> Wires:
    return await together(
        *(thinking(line, stream=stream, max_tokens=_FEW_TOKENS) for stream in (False, True))
    )


def _judge_apart(wires: Wires) -> list[str]:
    problems = []
    for wire in wires:
        draft = wire.answer()
        text, reasoning = "".join(draft.text), "".join(draft.reasoning)
        how = "stream" if wire.streamed else "one-shot"
        marks = [mark for mark in _MARKS if mark in text or mark in reasoning]
        if marks:
            problems.append(f"{marks[0]} stands in the answer ({how}): {text[:80]!r}")
        elif not reasoning:
            problems.append(f"reasoning was asked for, and there is none ({how})")
        elif draft.finish_reason == "stop" and not text.strip():
            problems.append(f"all of the answer is reasoning ({how}): {reasoning[-80:]!r}")
        elif reasoning.strip() in text:
            problems.append(f"the reasoning stands in the content too ({how})")
    return problems


def _judge_cut(wires: Wires) -> list[str]:
    problems = []
    for wire in wires:
        draft = wire.answer()
        text = "".join(draft.text)
        how = "stream" if wire.streamed else "one-shot"
        if draft.finish_reason != "length":
            problems.append(f"cut after {_FEW_TOKENS} tokens: {draft.finish_reason!r} ({how})")
        if text:
            problems.append(f"cut inside its reasoning, and content is {text!r} ({how})")
    return problems


def _moved(body: dict[str, Any]) -> None:
    message = body["choices"][0]["message"]
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    message["content"] = f"{thought}</think>{message.get('content') or ''}"


def _spilled(body: dict[str, Any]) -> None:
    body["choices"][0]["message"]["content"] = " ."


REASONING = (
    Check(
        name="reasoning_is_apart_from_content",
        title="reasoning comes in a field of its own, without marks, and an answer follows",
        collect=_thought,
        judge=_judge_apart,
        damages=(edited("reasoning is put before the content", _moved),),
        needs=("reasoning",),
        cost_requests=2,
        cost_tokens=THINKING_TOKENS // 4,
    ),
    Check(
        name="nothing_spills_when_reasoning_is_cut",
        title="an answer cut inside its reasoning has no content, and says 'length'",
        collect=_cut_thought,
        judge=_judge_cut,
        damages=(edited("a few characters stand in the content", _spilled),),
        needs=("reasoning",),
        cost_requests=2,
    ),
)
