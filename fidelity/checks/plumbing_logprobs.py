"""Logprobs of generated tokens and of given text: all there, sane, and of the right token."""

from __future__ import annotations

import math
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import OPEN, counting
from fidelity.checks.plumbing_shape import edited
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire
    from fidelity.endpoint.replies import TokenLogprob

TOPS = 4
_ROUNDING_NATS = 1e-3
"""Of sums and orders within one answer, which was computed once."""
_NOISE_NATS = 0.25
"""Between two computations of one value: bf16 on paths of other shape stays well below."""
_NOTICEABLE_NATS = 0.02
_UNIFORM_NATS = 1e-6


async def _whole(line: Line) -> Wires:
    return [await counting(line, stream=False, top_logprobs=TOPS)]


async def _both(line: Line) -> Wires:
    return await together(
        *(counting(line, stream=stream, top_logprobs=TOPS) for stream in (True, False))
    )


async def _unasked(line: Line) -> Wires:
    return [await counting(line, stream=False)]


def _given(wire: Wire) -> list[TokenLogprob]:
    found = wire.answer().logprobs
    if not found:
        raise shape.Malformed("logprobs were asked for, and the answer has none")
    return found


def _judge_texts(wires: Wires) -> list[str]:
    entries = _given(wires[0])
    draft = wires[0].answer()
    text = "".join(draft.reasoning) + "".join(draft.text)
    joined = _joined(wires[0], entries)
    for drop in (0, 1):  # the token that ends the answer is no part of its text
        if joined[: len(joined) - drop] and "".join(joined[: len(joined) - drop]) == text:
            return []
    return [f"token texts give {''.join(joined)[:120]!r}, the answer is {text[:120]!r}"]


def _joined(wire: Wire, entries: Sequence[TokenLogprob]) -> list[str]:
    """Return the tokens' texts; characters of several tokens are joined by their bytes."""
    block = shape.mapping(wire.choice().get("logprobs"), "logprobs")
    content = shape.sequence(block.get("content"), "logprobs.content")
    raw = [shape.mapping(entry, "logprobs.content[]").get("bytes") for entry in content]
    if not raw or not all(isinstance(piece, list) for piece in raw):
        return [entry.token for entry in entries]
    return [bytes(piece).decode("utf-8", "replace") for piece in raw if piece is not None]


def _judge_values(wires: Wires) -> list[str]:
    problems = []
    for place, entry in enumerate(_given(wires[0])):
        problems += _value_breaches(place, entry)
    return problems


def _value_breaches(place: int, entry: TokenLogprob) -> list[str]:
    value = entry.logprob
    name = f"token {place} ({entry.token!r})"
    if value is None or not math.isfinite(value) or value > _ROUNDING_NATS:
        return [f"{name} has the logprob {value}"]
    if not entry.top:
        return [f"{name} has no alternatives, {TOPS} were asked for"]
    values = [top.logprob for top in entry.top]
    problems = []
    if len({round(v / _UNIFORM_NATS) for v in values}) == 1 and len(values) > 1:
        problems.append(f"{name}: all alternatives have one logprob, {values[0]:.4f}")
    if sum(map(math.exp, values)) > 1 + _ROUNDING_NATS:
        problems.append(f"{name}: the alternatives' probabilities add up to more than 1")
    if value < max(values) - _ROUNDING_NATS:
        problems.append(f"{name} has {value:.4f} in a greedy answer, an alternative {max(values)}")
    return problems


def _judge_tops(wires: Wires) -> list[str]:
    """Some servers list the chosen token beside those asked for."""
    problems = []
    for place, entry in enumerate(_given(wires[0])):
        values = [top.logprob for top in entry.top]
        if len(values) not in {TOPS, TOPS + 1}:
            problems.append(f"token {place} has {len(values)} alternatives, asked for {TOPS}")
        elif values[:TOPS] != sorted(values[:TOPS], reverse=True):
            problems.append(f"alternatives of token {place} are not in order: {values}")
    return problems


def _judge_stream(wires: Wires) -> list[str]:
    streamed, whole = (_given(wire) for wire in wires)
    texts = [[entry.token for entry in entries] for entries in (streamed, whole)]
    if texts[0] != texts[1]:
        one, other = ("".join(wire.answer().text) for wire in wires)
        if one != other:
            raise Undecided("the stream and the one-shot answer are two texts")
        return [f"{len(texts[0])} tokens with logprobs in the stream, {len(texts[1])} one-shot"]
    far = [
        abs((a.logprob or 0.0) - (b.logprob or 0.0)) for a, b in zip(streamed, whole, strict=True)
    ]
    return [f"logprobs differ by {max(far):.3f} nats"] if median(far) > _NOISE_NATS else []


def _judge_unasked(wires: Wires) -> list[str]:
    return ["logprobs were not asked for, and given"] if wires[0].answer().logprobs else []


# ---- given text


async def _scored(line: Line) -> Wires:
    """Generate with logprobs and ids, then score prompt and completion as a given text."""
    chat = await line.chat(
        OPEN,
        label="generate",
        max_tokens=16,
        stream=False,
        temperature=0.0,
        top_logprobs=1,
        return_token_ids=True,
    )
    draft = chat.answer()
    if not draft.prompt_token_ids or not draft.token_ids:
        return [chat]
    given = [*draft.prompt_token_ids, *draft.token_ids]
    shorter = given[: len(draft.prompt_token_ids) + len(draft.token_ids) // 2]
    scored = [
        await line.complete(
            ids, label=label, max_tokens=1, stream=False, temperature=0.0, prompt_logprobs=1, copy=n
        )
        for n, (label, ids) in enumerate(
            (("score it all", given), ("score its beginning", shorter), ("score it again", given))
        )
    ]
    return [chat, *scored]


def _prompt_values(wire: Wire) -> list[float | None]:
    entries = wire.answer().prompt_logprobs
    if not entries:
        raise shape.Malformed("prompt_logprobs were asked for, and the answer has none")
    return [None if entry is None else entry.logprob for entry in entries]


def _needs_ids(wires: Wires) -> None:
    if len(wires) < 2:
        raise Undecided("no token ids in the answer: generated text cannot be given back")


def _judge_alignment(wires: Wires) -> list[str]:
    """Values of given text are held against those of generating it, as they are and shifted."""
    _needs_ids(wires)
    draft = wires[0].answer()
    start = len(draft.prompt_token_ids or ())
    generated = [entry.logprob for entry in _given(wires[0])]
    values = _prompt_values(wires[1])
    length = start + len(draft.token_ids or ())
    if len(values) != length:
        return [f"{len(values)} prompt_logprobs for {length} tokens"]
    if values[0] is not None and not math.isclose(values[0], 0.0):
        return [f"the first token has nothing before it, and the logprob {values[0]}"]
    far = {shift: _distance(generated, values, start + shift) for shift in (-1, 0, 1)}
    best = min(far, key=lambda shift: far[shift])
    # noise is the same at every place; a list that fits better elsewhere is moved
    moved = far[0] > _NOTICEABLE_NATS and far[0] > 2 * far[best]
    if far[0] <= _NOISE_NATS and not moved:
        return []
    return [
        f"a generated text that is given back has logprobs {far[0]:.3f} nats away from those of"
        " its generation" + (f"; moved by {best} it is {far[best]:.3f}" if best else "")
    ]


def _distance(generated: Sequence[float | None], values: Sequence[float | None], at: int) -> float:
    pairs = zip(generated, values[at : at + len(generated)], strict=False)
    found = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    return mean(found) if found else math.inf


def _judge_given_ids(wires: Wires) -> list[str]:
    _needs_ids(wires)
    draft = wires[0].answer()
    given = [*(draft.prompt_token_ids or ()), *(draft.token_ids or ())]
    entries = wires[1].answer().prompt_logprobs or []
    for place, (entry, token) in enumerate(zip(entries, given, strict=False)):
        if entry is not None and token not in {top.token_id for top in entry.top}:
            return [f"position {place} holds token {token}, and has the logprob of another"]
        if entry is not None and (entry.logprob or 0.0) > _ROUNDING_NATS:
            return [f"position {place} has the logprob {entry.logprob}"]
    return []


def _judge_prefix(wires: Wires) -> list[str]:
    _needs_ids(wires)
    values = [_prompt_values(wire) for wire in wires[1:]]
    problems = []
    for other, what in ((values[1], "its beginning alone"), (values[2], "asking it again")):
        far = _distance(values[0][1 : len(other)], other, 1)
        if far > _NOISE_NATS:
            problems.append(f"{what} changes the logprobs of one text by {far:.3f} nats on average")
    return problems


def _shifted(wires: Wires) -> Wires:
    body = wires[1].json()
    for place in (body, *body["choices"]):
        values = place.get("prompt_logprobs")
        if values:
            place["prompt_logprobs"] = [None, *values[2:], values[-1]]
    return [wires[0], wires[1].with_json(body), *wires[2:]]


def _content(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body["choices"][0]["logprobs"]["content"]
    return found


def _drop_one(body: dict[str, Any]) -> None:
    del _content(body)[len(_content(body)) // 2]


def _next_value(body: dict[str, Any]) -> None:
    values = [entry["logprob"] for entry in _content(body)]
    for entry, value in zip(_content(body), [-9.0, *values], strict=False):
        entry["logprob"] = value


def _one_top(body: dict[str, Any]) -> None:
    for entry in _content(body):
        entry["top_logprobs"] = entry["top_logprobs"][:1]


def _put_in(body: dict[str, Any]) -> None:
    body["choices"][0]["logprobs"] = {"content": [{"token": "1", "logprob": -0.1}]}


def _fewer_whole(wires: Wires) -> Wires:
    body = wires[1].json()
    _drop_one(body)
    return [wires[0], wires[1].with_json(body)]


LOGPROBS = (
    Check(
        name="tokens_spell_the_answer",
        title="texts of the tokens with logprobs add up to the answer",
        collect=_whole,
        judge=_judge_texts,
        damages=(edited("a token is dropped", _drop_one),),
        feature="logprobs",
    ),
    Check(
        name="values_are_of_the_chosen_token",
        title="in a greedy answer each logprob is finite, <= 0 and the largest of its alternatives",
        collect=_whole,
        judge=_judge_values,
        damages=(edited("values move on by one token", _next_value),),
        feature="top_logprobs",
    ),
    Check(
        name="as_many_alternatives_as_asked",
        title="each token has as many alternatives as were asked for, the best first",
        collect=_whole,
        judge=_judge_tops,
        damages=(edited("one alternative is left", _one_top),),
        feature="top_logprobs",
    ),
    Check(
        name="stream_gives_the_same",
        title="a stream gives the logprobs of the one-shot answer",
        collect=_both,
        judge=_judge_stream,
        damages=(Damage(what="a token of the one-shot answer is dropped", apply=_fewer_whole),),
        feature="logprobs",
        cost_requests=2,
    ),
    Check(
        name="none_unless_asked",
        title="no logprobs come that were not asked for",
        collect=_unasked,
        judge=_judge_unasked,
        damages=(edited("logprobs are put in", _put_in),),
    ),
    Check(
        name="given_text_is_scored_as_generated",
        title="a generated text that is given back has the logprobs of its generation",
        collect=_scored,
        judge=_judge_alignment,
        damages=(Damage(what="values move by one token", apply=_shifted),),
        needs=("prompt_logprobs", "token_ids", "logprobs", "completions"),
        cost_requests=4,
        cost_tokens=120,
    ),
    Check(
        name="given_tokens_have_their_own_logprob",
        title="each position of a given text has the logprob of the token given there",
        collect=_scored,
        judge=_judge_given_ids,
        damages=(Damage(what="values move by one token", apply=_shifted),),
        needs=("prompt_logprobs", "token_ids", "completions"),
        cost_requests=4,
        cost_tokens=120,
    ),
    Check(
        name="given_text_is_scored_alike_each_time",
        title="a text's beginning, and a second request, give the same logprobs of given text",
        collect=_scored,
        judge=_judge_prefix,
        damages=(Damage(what="values move by one token", apply=_shifted),),
        needs=("prompt_logprobs", "token_ids", "completions"),
        cost_requests=4,
        cost_tokens=120,
    ),
)
