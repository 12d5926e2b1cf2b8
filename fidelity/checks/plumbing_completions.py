"""/completions: logprobs in their own shape, echo, several prompts, streams; a chat that is begun.

A server that has /completions often has it through code written for chats: fields come in the
shape of the other API, and usage is that of the first prompt.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import COUNTING_ON
from fidelity.checks.plumbing_shape import edited
from fidelity.endpoint import json_shape as shape
from fidelity.probes.dialogue import assistant

if TYPE_CHECKING:
    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire

_PROMPT = "The capital of France is"
_OTHER_PROMPT = "One, two, three, four,"
_TOKENS = 6
_TOPS = 2
_BEGUN = "1, 2, 3,"


async def _complete(line: Line, prompt: Any, label: str, **options: Any) -> Wire:
    options = {"max_tokens": _TOKENS, "stream": False, **options}
    return await line.complete(prompt, label=label, temperature=0.0, **options)


def _text(wire: Wire) -> str:
    return "".join(wire.answer().text)


# ---- logprobs


async def _scored(line: Line) -> Wires:
    return [await _complete(line, _PROMPT, "logprobs", extra={"logprobs": _TOPS})]


def _block(wire: Wire) -> dict[str, Any]:
    text = _text(wire)  # raises where the request was refused
    block = shape.mapping(wire.choice().get("logprobs"), "logprobs")
    if text and not block:
        raise shape.Malformed("logprobs were asked for, and the answer has none")
    return block


def _judge_block(wires: Wires) -> list[str]:
    block = _block(wires[0])
    missing = [name for name in ("tokens", "token_logprobs", "top_logprobs") if name not in block]
    if missing:
        return [f"logprobs of a completion have no {missing}, but {sorted(block)}"]
    sizes = {name: len(block[name] or ()) for name in ("tokens", "token_logprobs", "top_logprobs")}
    if len(set(sizes.values())) > 1:
        return [f"arrays of logprobs have different lengths: {sizes}"]
    told = [str(token) for token in block["tokens"]]
    spelt = ["".join(told)]
    if wires[0].answer().finish_reason == "stop":
        spelt.append("".join(told[:-1]))  # the token that ended it has a logprob and no text
    if _text(wires[0]) not in spelt:
        return [f"tokens give {spelt[0]!r}, text is {_text(wires[0])!r}"]
    return _offset_breaches(block)


def _offset_breaches(block: dict[str, Any]) -> list[str]:
    offsets = block.get("text_offset")
    if not isinstance(offsets, list) or not offsets:
        return []
    steps = [after - before for before, after in pairwise(offsets)]
    lengths = [len(str(token)) for token in block["tokens"]][:-1]
    return [] if steps == lengths else [f"text_offset {offsets} for tokens {block['tokens']}"]


def _as_chat(body: dict[str, Any]) -> None:
    body["choices"][0]["logprobs"] = {"content": []}


# ---- echo and several prompts


async def _echoed(line: Line) -> Wires:
    return await together(
        _complete(line, _PROMPT, "plain"),
        _complete(line, _PROMPT, "echo", extra={"echo": True}),
    )


def _judge_echo(wires: Wires) -> list[str]:
    plain, echoed = (_text(wire) for wire in wires)
    if echoed == _PROMPT + plain or (echoed.startswith(_PROMPT) and echoed != plain):
        return []
    return [f"echo is accepted, and the text is {echoed!r} without the prompt"]


def _unechoed(wires: Wires) -> Wires:
    return [wires[0], wires[1].with_json(wires[0].json())]


async def _several(line: Line) -> Wires:
    prompts = [_PROMPT, _OTHER_PROMPT]
    return [
        *await together(*(_complete(line, prompt, prompt) for prompt in prompts)),
        await _complete(line, prompts, "both prompts in one request"),
    ]


def _judge_several(wires: Wires) -> list[str]:
    *single, both = wires
    both.answer()  # raises where the request was refused
    choices = [shape.mapping(c, "choice") for c in shape.sequence(both.json()["choices"], "c")]
    indexes = [choice.get("index") for choice in choices]
    if sorted(map(str, indexes)) != ["0", "1"]:
        return [f"two prompts, and choices of the indexes {indexes} came"]
    texts = [c.get("text") for c in sorted(choices, key=lambda choice: choice["index"])]
    alone = [_text(wire) for wire in single]
    if texts == alone[::-1] and alone[0] != alone[1]:
        return [f"the answers of two prompts are swapped: {texts}"]
    told = both.answer().usage
    problems = []
    for name in ("prompt_tokens", "completion_tokens"):
        parts = [wire.answer().usage.get(name) for wire in single]
        if told.get(name) is None or None in parts or texts != alone:
            continue
        if told[name] != sum(part or 0 for part in parts):
            problems.append(f"{name} of two prompts: {parts} one by one, {told[name]} together")
    return problems


def _first_usage(wires: Wires) -> Wires:
    body = wires[2].json()
    body["usage"] = {**(body.get("usage") or {}), **wires[0].json()["usage"]}
    return [*wires[:2], wires[2].with_json(body)]


def _swapped(wires: Wires) -> Wires:
    body = wires[2].json()
    for choice in body["choices"]:
        choice["index"] = 1 - choice["index"]
    return [*wires[:2], wires[2].with_json(body)]


# ---- streams


async def _streamed(line: Line) -> Wires:
    return await together(
        _complete(line, _PROMPT, "stream", stream=True),
        _complete(line, _PROMPT, "one-shot"),
        _complete(line, _PROMPT, "one-shot, again", copy=1),
    )


async def _continued(line: Line) -> Wires:
    begun = [*COUNTING_ON, assistant(_BEGUN)]
    return await together(
        *(
            line.chat(begun, label=label, max_tokens=12, temperature=0.0, stream=stream, copy=copy)
            for label, stream, copy in (
                ("stream", True, 0),
                ("one-shot", False, 0),
                ("one-shot, again", False, 1),
            )
        )
    )


def _judge_same(wires: Wires) -> list[str]:
    streamed, whole, again = (_text(wire) for wire in wires)
    if whole != again:
        raise Undecided("two equal greedy requests gave two texts: nothing to compare with")
    problems = []
    if streamed != whole:
        problems.append(f"text: {streamed!r} in the stream, {whole!r} in one piece")
    reasons = [wire.answer().finish_reason for wire in wires[:2]]
    if reasons[0] != reasons[1]:
        problems.append(f"finish_reason: {reasons[0]!r} in the stream, {reasons[1]!r} in one piece")
    return problems


def _first_dropped(wires: Wires) -> Wires:
    """Drop the first event with text of a stream: where servers strip and skip."""
    events = [json.loads(text) for text in wires[0].stream.data]
    at = next(i for i, event in enumerate(events) if _spoken(event))
    texts = [json.dumps(event) for i, event in enumerate(events) if i != at]
    return [wires[0].with_events([*texts, "[DONE]"]), *wires[1:]]


def _spoken(event: dict[str, Any]) -> bool:
    choices = event.get("choices") or ()
    return any(c.get("text") or (c.get("delta") or {}).get("content") for c in choices)


_DROPPED = Damage(what="the first piece of the stream is dropped", apply=_first_dropped)


COMPLETIONS = (
    Check(
        name="logprobs_have_their_own_shape",
        title="logprobs of a completion are parallel arrays whose tokens spell the text",
        collect=_scored,
        judge=_judge_block,
        damages=(edited("they come in the shape of a chat", _as_chat),),
        needs=("completions",),
        feature="logprobs",
    ),
    Check(
        name="echo_gives_the_prompt",
        title="echo puts the prompt before the text, or is refused",
        collect=_echoed,
        judge=_judge_echo,
        damages=(Damage(what="the prompt is left out", apply=_unechoed),),
        needs=("completions",),
        refusable=True,
        cost_requests=2,
    ),
    Check(
        name="several_prompts_are_answered_each",
        title="two prompts give two choices in order, and usage counts both, or they are refused",
        collect=_several,
        judge=_judge_several,
        damages=(
            Damage(what="usage is that of the first", apply=_first_usage),
            Damage(what="the two are swapped", apply=_swapped),
        ),
        needs=("completions",),
        refusable=True,
        cost_requests=3,
    ),
    Check(
        name="stream_equals_one_shot",
        title="stream and one-shot give the same completion",
        collect=_streamed,
        judge=_judge_same,
        damages=(_DROPPED,),
        needs=("completions", "stream"),
        cost_requests=3,
    ),
    Check(
        name="begun_answer_goes_on_alike",
        title="an answer that the last message begins goes on alike in a stream and in one piece",
        collect=_continued,
        judge=_judge_same,
        damages=(_DROPPED,),
        needs=("stream",),
        refusable=True,
        cost_requests=3,
    ),
)
