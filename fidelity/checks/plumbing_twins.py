"""Stream against one-shot, and texts of many scripts: nothing may be lost between two chunks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import ECHOED, counting, echo, thinking, weather
from fidelity.checks.plumbing_shape import respun, without_delta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fidelity.checks.conformance import Collect, Wires
    from fidelity.checks.conformance_wire import Line, Wire
    from fidelity.endpoint.reply_draft import Draft

_LOST = "\ufffd"


def _pair(ask: Callable[..., Awaitable[Wire]]) -> Collect:
    async def collect(line: Line) -> Wires:
        return await together(
            ask(line, stream=True),
            ask(line, stream=False),
            ask(line, stream=False, copy=1),
        )

    return collect


def _parts(draft: Draft) -> dict[str, Any]:
    return {
        "content": "".join(draft.text),
        "reasoning": "".join(draft.reasoning),
        "tool calls": [(call.name, call.arguments) for call in draft.tool_calls()],
        "finish_reason": draft.finish_reason,
        "completion_tokens": draft.usage.get("completion_tokens"),
    }


def _judge_pair(wires: Wires) -> list[str]:
    """Structure is always compared; texts only where the server repeats itself."""
    streamed, whole, again = (_parts(wire.answer()) for wire in wires)
    repeats = whole == again
    if not any(whole[name] for name in ("content", "reasoning", "tool calls")):
        raise Undecided("the answer is empty")
    problems = []
    for name, value in whole.items():
        other = streamed[name]
        if (repeats and other is not None and other != value) or (
            bool(other) != bool(value) and bool(value) == bool(again[name]) and other is not None
        ):
            problems.append(f"{name}: {_short(other)} in the stream, {_short(value)} in one piece")
    return problems


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:70]} ... {text[-40:]}"


def _without_output(events: list[str]) -> list[str]:
    return [events[0], *(text for text in events[1:] if "delta" not in text or '"finish' in text)]


# ---- scripts


async def _echoes(line: Line) -> Wires:
    return await together(
        *(echo(line, text, stream=stream) for text in ECHOED for stream in (False, True))
    )


def _judge_scripts(wires: Wires) -> list[str]:
    problems, repeated = [], 0
    for text, whole, stream in zip(ECHOED, wires[::2], wires[1::2], strict=True):
        answers = ["".join(wire.answer().text) for wire in (whole, stream)]
        for answer, other, how in zip(answers, answers[::-1], ("one-shot", "stream"), strict=True):
            if text in answer:
                repeated += 1
            elif _fits_with_losses(answer, text) or (_LOST in answer and text in other):
                problems.append(f"{text!r} came back as {answer!r} ({how})")
    if not problems and not repeated:
        raise Undecided("the model repeats none of these texts")
    return problems


def _fits_with_losses(answer: str, text: str) -> bool:
    """Tell whether an answer is the text with some characters lost or replaced by U+FFFD."""
    stripped = answer.strip()
    pieces = [piece for piece in stripped.split(_LOST) if piece]
    place = 0
    for piece in pieces:
        found = text.find(piece, place)
        if found < 0:
            break
        place = found + len(piece)
    else:
        return _LOST in stripped
    rest = iter(text)
    is_part = all(char in rest for char in stripped)
    return is_part and 2 * len(stripped) >= len(text)


def _replaced(wires: Wires) -> Wires:
    """In an answer that came back whole, a character becomes U+FFFD."""
    for place, text in enumerate(ECHOED):
        wire = wires[2 * place]
        body = wire.json()
        message = body["choices"][0]["message"]
        if text in (message.get("content") or ""):
            lost = next(char for char in text if not char.isascii())
            message["content"] = message["content"].replace(lost, _LOST)
            return [*wires[: 2 * place], wire.with_json(body), *wires[2 * place + 1 :]]
    raise Undecided("no answer in one piece repeats its text")


def _dropped_call(wires: Wires) -> Wires:
    events = [json.loads(text) for text in wires[0].stream.data]
    for event in events:
        for choice in event.get("choices", ()):
            for call in choice.get("delta", {}).get("tool_calls") or ():
                call.get("function", {}).pop("arguments", None)
    texts = [json.dumps(event) for event in events]
    return [wires[0].with_events([*texts, "[DONE]"]), *wires[1:]]


_DROPPED = respun("a delta is dropped", without_delta)
TWINS = (
    Check(
        name="plain_answer",
        title="stream and one-shot give the same plain answer",
        collect=_pair(counting),
        judge=_judge_pair,
        damages=(_DROPPED,),
        cost_requests=3,
    ),
    Check(
        name="cut_answer",
        title="stream and one-shot give the same answer when max_tokens cuts it",
        collect=_pair(lambda line, **options: counting(line, max_tokens=9, **options)),
        judge=_judge_pair,
        damages=(_DROPPED,),
        cost_requests=3,
    ),
    Check(
        name="reasoning",
        title="stream and one-shot give the same reasoning and content",
        collect=_pair(thinking),
        judge=_judge_pair,
        damages=(_DROPPED,),
        needs=("reasoning",),
        cost_requests=3,
    ),
    Check(
        name="tool_call",
        title="stream and one-shot give the same tool call",
        collect=_pair(weather),
        judge=_judge_pair,
        damages=(Damage(what="arguments are dropped from the stream", apply=_dropped_call),),
        needs=("tools",),
        cost_requests=3,
        cost_tokens=200,
    ),
    Check(
        name="other_scripts",
        title="stream and one-shot give the same text in other scripts",
        collect=_pair(lambda line, **options: echo(line, ECHOED[0], **options)),
        judge=_judge_pair,
        damages=(_DROPPED,),
        cost_requests=3,
    ),
    Check(
        name="characters_survive_chunks",
        title="characters of several tokens arrive whole, many answers at once",
        collect=_echoes,
        judge=_judge_scripts,
        damages=(Damage(what="a character becomes U+FFFD", apply=_replaced),),
        cost_requests=12,
        cost_tokens=300,
    ),
)
