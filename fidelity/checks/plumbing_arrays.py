"""Logprobs of /completions, arrays beside the text: in a stream, and behind an echoed prompt."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import together
from fidelity.checks.plumbing_pieces import (
    ARRAY_NAMES,
    LATE_OR_LOST,
    LOST,
    Part,
    chunk_breaches,
    parts_of,
    whole,
)
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire

_PROMPT = "The capital of France is"
_TOPS = 2
_TOKENS = 6


async def _complete(line: Line, label: str, *, stream: bool, **extra: Any) -> Wire:
    return await line.complete(
        _PROMPT,
        label=label,
        max_tokens=_TOKENS,
        stream=stream,
        temperature=0.0,
        extra={"logprobs": _TOPS, **extra},
    )


async def _completed(line: Line) -> Wires:
    return await together(
        _complete(line, "stream with logprobs", stream=True),
        _complete(line, "logprobs", stream=False),
    )


def _judge_completed(wires: Wires) -> list[str]:
    streamed, one = (whole(parts_of(wire)) for wire in wires)
    problems = [found for part in parts_of(wires[0]) for found in _array_breaches(part)]
    problems += [*chunk_breaches(wires[0]), *_offset_breaches(streamed)]
    if not problems and streamed.text == one.text and streamed.pieces != one.pieces:
        counts = f"{len(streamed.pieces)} entries in the stream, {len(one.pieces)} in one piece"
        problems.append(f"of one text: {counts}")
    return problems[:3]


def _array_breaches(part: Part) -> list[str]:
    sizes = {
        name: len(part.block[name]) for name in ARRAY_NAMES if part.block.get(name) is not None
    }
    return [f"arrays of different lengths: {sizes}"] if len(set(sizes.values())) > 1 else []


def _offset_breaches(part: Part, first: int | None = None) -> list[str]:
    """Offsets count characters; only tokens of whole characters tell how many they are."""
    told = part.block.get("text_offset") or []
    offsets = [shape.whole(at, "text_offset") or 0 for at in told]
    if not offsets or any(LOST in piece.decode(errors="replace") for piece in part.pieces):
        return []
    if len(offsets) != len(part.pieces):
        return [f"{len(offsets)} text_offsets for {len(part.pieces)} tokens"]
    steps = [after - before for before, after in pairwise(offsets)]
    lengths = [len(piece.decode()) for piece in part.pieces]
    if steps != lengths[:-1] or (first is not None and offsets[0] != first):
        return [f"text_offset {offsets} for tokens of the lengths {lengths}"]
    return []


async def _echoed(line: Line) -> Wires:
    return await together(
        *(
            _complete(line, "echo with logprobs", stream=stream, echo=True)
            for stream in (False, True)
        )
    )


def _judge_echoed(wires: Wires) -> list[str]:
    problems = []
    for wire in wires:
        how = "stream" if wire.streamed else "one-shot"
        part = whole(parts_of(wire))
        problems += [f"{problem} ({how})" for problem in _echo_breaches(wire, part)]
    return problems


def _echo_breaches(wire: Wire, part: Part) -> list[str]:
    if not part.text.startswith(_PROMPT):
        return [f"echo is accepted, and the text is {part.text!r} without the prompt"]
    usage = wire.answer().usage
    prompt, answer = usage.get("prompt_tokens"), usage.get("completion_tokens")
    counts = None if prompt is None or answer is None else prompt + answer
    spelt = b"".join(part.pieces).decode(errors="replace")
    problems = [*_array_breaches(part), *_offset_breaches(part, first=0)]
    if counts is not None and len(part.pieces) != counts:
        problems.append(f"{len(part.pieces)} entries for {prompt} and {answer} tokens")
    elif part.text not in spelt:
        problems.append(f"the text is {part.text!r}, its tokens spell {spelt!r}")
    values = part.block.get("token_logprobs") or []
    if values and values[0]:
        problems.append(f"the first token has nothing before it, and the logprob {values[0]}")
    if any(value is None for value in values[1:]):
        problems.append(f"{sum(v is None for v in values)} of {len(values)} logprobs are null")
    return problems


def _arrays(change: Callable[[dict[str, Any]], None]) -> Callable[[Wires], Wires]:
    def apply(wires: Wires) -> Wires:
        body = wires[0].json()
        change(body["choices"][0]["logprobs"])
        return [wires[0].with_json(body), *wires[1:]]

    return apply


def _answer_only(block: dict[str, Any]) -> None:
    for name in list(block):
        block[name] = block[name][-_TOKENS:]


def _first_valued(block: dict[str, Any]) -> None:
    block["token_logprobs"][0] = -1.5


ARRAYS = (
    Check(
        name="completion_chunks_come_with_their_own_logprobs",
        title="logprobs of a streamed completion are parallel, spell its text, and tell its places",
        collect=_completed,
        judge=_judge_completed,
        damages=LATE_OR_LOST,
        needs=("completions", "stream"),
        feature="logprobs",
        cost_requests=2,
        cost_tokens=30,
    ),
    Check(
        name="echo_comes_with_the_prompts_logprobs",
        title="an echo with logprobs has one of each token, none of the first, or is refused",
        collect=_echoed,
        judge=_judge_echoed,
        damages=(
            Damage(what="entries of the prompt are left out", apply=_arrays(_answer_only)),
            Damage(what="the first token is given a logprob", apply=_arrays(_first_valued)),
        ),
        needs=("completions",),
        refusable=True,
        cost_requests=2,
        cost_tokens=30,
    ),
)
