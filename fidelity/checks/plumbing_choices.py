"""Several choices in one answer: each whole, in a stream too, and all of them counted.

Asked so that sampling has one token to choose from: every choice is then the same text, and no
server takes it for the greedy request that it refuses for more than one choice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_pieces import Part, parts_of, whole
from fidelity.checks.plumbing_questions import COUNTING_ON
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from fidelity.checks.conformance import Collect, Wires
    from fidelity.checks.conformance_wire import Line, Wire

CHOICES = 2
_PROMPT = "One, two, three, four,"
_TOKENS = 6
_TOPS = 2
_NARROW = 0.01
"""Of temperature and top_p: what is left to draw is the likeliest token."""


def _asked(*, chat: bool, tops: int | None = None) -> Collect:
    """Ask for several choices in a stream and in one piece."""

    async def ask(line: Line, *, stream: bool) -> Wire:
        api = "chat" if chat else "completion"
        options: dict[str, Any] = {
            "label": f"{api}, n {CHOICES}, {'stream' if stream else 'one-shot'}",
            "max_tokens": _TOKENS,
            "temperature": _NARROW,
            "stream": stream,
            "top_logprobs": tops,
            "extra": {"n": CHOICES, "top_p": _NARROW},
        }
        if chat:
            return await line.chat(COUNTING_ON, **options)
        return await line.complete(_PROMPT, **options)

    async def collect(line: Line) -> Wires:
        return await together(*(ask(line, stream=stream) for stream in (True, False)))

    return collect


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    part: Part
    reasons: list[str]
    late: bool


def _choices(wire: Wire) -> dict[int, _Choice]:
    """Return what came of each index."""
    wire.answer()  # raises where the request was refused
    reasons: dict[int, list[str]] = {}
    for event in wire.events():
        for raw in shape.sequence(event.get("choices"), "choices"):
            choice = shape.mapping(raw, "choices[]")
            found = reasons.setdefault(shape.whole(choice.get("index"), "index") or 0, [])
            if choice.get("finish_reason") is not None:
                found.append(shape.text(choice["finish_reason"], "finish_reason"))
    result = {}
    for index, found in sorted(reasons.items()):
        parts = parts_of(wire, index)
        ends = [at for at, part in enumerate(parts) if part.ended]
        late = bool(ends) and any(part.text for part in parts[ends[0] + 1 :])
        result[index] = _Choice(part=whole(parts), reasons=found, late=late)
    return result


def _judge_each(wires: Wires) -> list[str]:
    streamed, one = (_choices(wire) for wire in wires)
    problems: list[str] = []
    for how, choices in (("stream", streamed), ("one-shot", one)):
        if sorted(choices) != list(range(CHOICES)):
            return [f"n is {CHOICES}, and choices of the indexes {sorted(choices)} came ({how})"]
        for index, choice in choices.items():
            if len(choice.reasons) != 1:
                problems.append(f"choice {index} has {choice.reasons} for finish_reason ({how})")
            if choice.late:
                problems.append(f"text of choice {index} comes behind its finish_reason ({how})")
    texts = {choice.part.text for choice in one.values()}
    if len(texts) == 1 and not problems:  # it repeats itself: the stream must say the same
        alike = next(iter(one.values()))
        problems += [
            f"choice {index}: {choice.part.text!r}, {choice.reasons} in the stream,"
            f" {alike.part.text!r}, {alike.reasons} in one piece"
            for index, choice in streamed.items()
            if (choice.part.text, choice.reasons) != (alike.part.text, alike.reasons)
        ]
    return problems


def _judge_usage(wires: Wires) -> list[str]:
    problems, counted = [], 0
    answers = [_choices(wire) for wire in wires]  # a refusal of either comes first
    for wire, choices in zip(wires, answers, strict=True):
        told = wire.answer().usage.get("completion_tokens")
        if len(choices) != CHOICES:
            raise Undecided(f"n is {CHOICES}, and {len(choices)} choices came: nothing to count")
        if told is None or any(choice.reasons != ["length"] for choice in choices.values()):
            continue
        counted += 1
        if told != _TOKENS * len(choices):
            how = "stream" if wire.streamed else "one-shot"
            made = f"{len(choices)} choices of {_TOKENS} tokens each"
            problems.append(f"{made}, and usage tells {told} completion tokens ({how})")
    if not counted:
        raise Undecided("no usage, or answers that ended by themselves: tokens are not known")
    return problems


def _judge_logprobs(wires: Wires) -> list[str]:
    problems = []
    for wire in wires:
        how = "stream" if wire.streamed else "one-shot"
        for index, choice in _choices(wire).items():
            text, pieces = choice.part.text, choice.part.pieces
            spelt = b"".join(pieces).decode(errors="replace")
            if not spelt.startswith(text) or (text and not pieces):
                told = f"choice {index} is {text!r}, its tokens with logprobs spell {spelt!r}"
                problems.append(f"{told} ({how})")
    return problems


def _edited(edit: Callable[[dict[str, Any]], bool]) -> Callable[[Wires], Wires]:
    """Edit the choices of the streamed exchange; False drops one."""

    def apply(wires: Wires) -> Wires:
        events = [json.loads(text) for text in wires[0].stream.data]
        for event in events:
            event["choices"] = [choice for choice in event.get("choices") or () if edit(choice)]
        return [wires[0].with_events([*map(json.dumps, events), "[DONE]"]), *wires[1:]]

    return apply


def _is_first(choice: dict[str, Any]) -> bool:
    return not choice.get("index")


def _mixed(choice: dict[str, Any]) -> bool:
    """All text comes under one index."""
    if choice.get("finish_reason") is None:
        choice["index"] = 0
    return True


def _of_the_first_only(choice: dict[str, Any]) -> bool:
    if choice.get("index"):
        choice["logprobs"] = None
    return True


def _counted_once(wires: Wires) -> Wires:
    body = wires[1].json()
    body["usage"]["completion_tokens"] = _TOKENS
    return [wires[0], wires[1].with_json(body)]


_ONE_LEFT = Damage(what="the stream keeps one choice", apply=_edited(_is_first))
_MIXED = Damage(what="all text of the stream comes under one index", apply=_edited(_mixed))
_ONE_COUNTED = Damage(what="the tokens of one choice are counted", apply=_counted_once)
SEVERAL = (
    Check(
        name="n_streams_every_choice",
        title=f"a stream of n {CHOICES} brings each choice whole, with one end, or is refused",
        collect=_asked(chat=True),
        judge=_judge_each,
        damages=(_ONE_LEFT, _MIXED),
        needs=("stream",),
        refusable=True,
        cost_requests=2,
    ),
    Check(
        name="usage_of_a_stream_counts_every_choice",
        title="usage of a stream counts the tokens of all choices",
        collect=_asked(chat=True),
        judge=_judge_usage,
        damages=(_ONE_COUNTED,),
        needs=("stream", "usage"),
        refusable=True,
        cost_requests=0,
        cost_tokens=0,
    ),
    Check(
        name="every_choice_has_its_logprobs",
        title="each of several choices has the logprobs of its own tokens, in a stream too",
        collect=_asked(chat=True, tops=_TOPS),
        judge=_judge_logprobs,
        damages=(Damage(what="the first alone has logprobs", apply=_edited(_of_the_first_only)),),
        needs=("stream", "logprobs"),
        refusable=True,
        cost_requests=2,
    ),
    Check(
        name="completions_bring_every_choice",
        title=f"n {CHOICES} of a completion brings each choice whole, or is refused",
        collect=_asked(chat=False),
        judge=_judge_each,
        damages=(_ONE_LEFT, _MIXED),
        needs=("completions", "stream"),
        refusable=True,
        cost_requests=2,
        cost_tokens=40,
    ),
    Check(
        name="usage_of_completions_counts_every_choice",
        title="usage of a completion counts the tokens of all choices",
        collect=_asked(chat=False),
        judge=_judge_usage,
        damages=(_ONE_COUNTED,),
        needs=("completions", "stream", "usage"),
        refusable=True,
        cost_requests=0,
        cost_tokens=0,
    ),
)
