"""Text and its tokens with logprobs: where a stop string cuts or holds back, and in each chunk.

A reader takes the n-th entry for the n-th token of the text. Servers hold text back and cut it, and
what stands beside it does not always follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_limits import stops_within
from fidelity.checks.plumbing_pieces import (
    LATE_OR_LOST,
    Part,
    chunk_breaches,
    encoded,
    parts_of,
    shown,
    whole,
)
from fidelity.checks.plumbing_questions import COUNTING_ON
from fidelity.probes.dialogue import user

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fidelity.checks.conformance import Judge, Wires
    from fidelity.checks.conformance_wire import Line, Wire
    from fidelity.probes.dialogue import Message

_ROCKETS = [user("Repeat exactly: \U0001f680\U0001f680\U0001f680 end")]
_WORDS = [user("Repeat exactly: the red fox and the blue owl")]
"""Words, since a token of several letters may be held back in part."""
_TOPS = 2
_BASE_TOKENS = 24
_CHUNK_TOKENS = 16


# ---- a stop string with logprobs


async def _ask(
    line: Line, messages: Sequence[Message], label: str, *, stream: bool = False, **options: Any
) -> Wire:
    return await line.chat(
        messages,
        label=label,
        max_tokens=_BASE_TOKENS,
        stream=stream,
        temperature=0.0,
        top_logprobs=_TOPS,
        return_token_ids=bool(line.client.server.dialect.ids_field),
        **options,
    )


async def _stopped(
    line: Line, messages: Sequence[Message], stop_in: Callable[[Part], str]
) -> list[Wire]:
    """Ask with logprobs: unstopped, and with a stop string, in one piece and in a stream."""
    base = await _ask(line, messages, "logprobs, unstopped")
    stop = stop_in(whole(parts_of(base)))
    if not stop:
        return [base]
    return [
        base,
        *await together(
            *(
                _ask(line, messages, f"logprobs and stop {stop!r}", stream=stream, stop=[stop])
                for stream in (False, True)
            )
        ),
    ]


async def _cut(line: Line) -> list[Wire]:
    return await _stopped(line, COUNTING_ON, lambda base: (stops_within(base.text) or [""])[-1])


async def _held(line: Line) -> list[Wire]:
    return await _stopped(line, _WORDS, _never_met)


def _never_met(base: Part) -> str:
    """Return a stop string that begins inside a token of the text, and ends nowhere in it."""
    words = [piece.decode(errors="ignore") for piece in base.pieces[2:]]
    begun = next((word[1:] for word in words if word[1:].strip() and word in base.text), "")
    begun = begun or base.text[len(base.text) // 2 :][:2]
    return f"{begun}\u2603" if begun else ""


def _judged(breaches: Callable[[Wire, Part], list[str]]) -> Judge:
    """Return a judge of one answer: whole, and with a stop string in one piece and in a stream."""

    def judge(wires: Wires) -> list[str]:
        if len(wires) < 3:
            raise Undecided("the answer is too short to stop inside it")
        if wires[0].answer().reasoning:
            raise Undecided("marks around reasoning are tokens without text")
        base, problems = whole(parts_of(wires[0])), []
        for wire in wires[1:]:
            part, how = whole(parts_of(wire)), "stream" if wire.streamed else "one-shot"
            if not base.text.startswith(part.text):
                raise Undecided("with a stop string the greedy text is another")
            found = breaches(wire, part) or _unlike(part, base) or _lagging(wire)
            problems += [f"{problem} ({how})" for problem in found]
        one, other = (whole(parts_of(wire)) for wire in wires[1:3])
        if not problems and one.text == other.text and one.pieces != other.pieces:
            counts = f"{len(other.pieces)} entries in the stream, {len(one.pieces)} in one piece"
            problems.append(f"of one text: {counts}")
        return problems

    return judge


def _unlike(part: Part, base: Part) -> list[str]:
    """The tokens of a text are the same, whatever would end it."""
    pairs = enumerate(zip(part.pieces, base.pieces, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), None)
    if at is None:
        return []
    told = shown(part.pieces[at : at + 4]), shown(base.pieces[at : at + 4])
    return [f"with a stop string entry {at} and those behind it are {told[0]}, without {told[1]}"]


def _lagging(wire: Wire) -> list[str]:
    return chunk_breaches(wire, ahead=True) if wire.streamed else []


def _cut_breaches(wire: Wire, part: Part) -> list[str]:
    """Entries reach as far as the text, and at most to the token that completes the stop."""
    stop, draft = wire.sent["stop"][0], wire.answer()
    if stop in part.text:
        return [f"with logprobs the stop string {stop!r} stands in the text"]
    if draft.finish_reason != "stop":
        raise Undecided(f"the answer did not come to its stop string {stop!r}")
    problems = _missing(wire, part)
    end, at = len(encoded(part.text + stop)), 0
    for place, piece in enumerate(part.pieces):
        if at >= end:
            problems.append(
                f"behind the text, cut at {stop!r}, entries go on: {shown(part.pieces[place:])}"
            )
            break
        at += len(piece)
    return problems


def _missing(wire: Wire, part: Part) -> list[str]:
    told = wire.answer().usage.get("completion_tokens")
    problems = []
    if not b"".join(part.pieces).startswith(encoded(part.text)):
        problems.append(f"the text ends {part.text[-30:]!r}, its tokens {shown(part.pieces)}")
    if told is not None and len(part.pieces) > told:
        problems.append(f"{len(part.pieces)} entries, and usage tells {told} tokens")
    if part.ids is not None and part.ids != len(part.pieces):
        problems.append(f"{part.ids} token ids, and {len(part.pieces)} entries")
    return problems


def _entries_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body["choices"][0]["logprobs"]["content"]
    return found


def _run_on(wires: Wires) -> Wires:
    body = wires[1].json()
    more = [{"token": text, "logprob": -0.1, "bytes": None} for text in (" and", " so", " on")]
    _entries_of(body).extend(more)
    return [wires[0], wires[1].with_json(body), *wires[2:]]


def _one_lost(wires: Wires) -> Wires:
    body = wires[1].json()
    del _entries_of(body)[2]
    return [wires[0], wires[1].with_json(body), *wires[2:]]


async def _streams(line: Line) -> Wires:
    return [wire for wire in (*await _cut(line), *await _held(line)) if wire.streamed]


def _judge_streams(wires: Wires) -> list[str]:
    if not wires:
        raise Undecided("the answer is too short to stop inside it")
    return _judge_chunks(wires)


# ---- each chunk of a stream


async def _chunked(line: Line) -> Wires:
    switch = False if line.client.server.dialect.thinking_keys else None
    return await together(
        *(
            line.chat(
                messages,
                label=label,
                max_tokens=_CHUNK_TOKENS,
                stream=True,
                temperature=0.0,
                thinking=switch,
                top_logprobs=_TOPS,
            )
            for messages, label in ((COUNTING_ON, "numbers"), (_ROCKETS, "characters of several"))
        )
    )


def _judge_chunks(wires: Wires) -> list[str]:
    return [problem for wire in wires for problem in chunk_breaches(wire)][:2]


ALIGNMENT = (
    Check(
        name="logprobs_end_where_a_stop_string_cuts",
        title="tokens with logprobs reach as far as the text, and no further than its stop string",
        collect=_cut,
        judge=_judged(_cut_breaches),
        damages=(
            Damage(what="entries go on behind the stop string", apply=_run_on),
            Damage(what="an entry is lost", apply=_one_lost),
        ),
        feature="logprobs",
        cost_requests=3,
        cost_tokens=150,
    ),
    Check(
        name="logprobs_stay_with_text_that_was_held_back",
        title="text that begins like a stop string keeps its tokens and their logprobs",
        collect=_held,
        judge=_judged(_missing),
        damages=(Damage(what="an entry is lost", apply=_one_lost),),
        feature="logprobs",
        cost_requests=3,
        cost_tokens=160,
    ),
    Check(
        name="chunks_keep_their_logprobs_beside_a_stop_string",
        title="where a stop string holds text back, its tokens with logprobs wait for it",
        collect=_streams,
        judge=_judge_streams,
        damages=LATE_OR_LOST,
        needs=("stream",),
        feature="logprobs",
        cost_requests=0,
        cost_tokens=0,
    ),
    Check(
        name="chunks_come_with_their_own_logprobs",
        title="the tokens with logprobs of a chunk spell the text of that chunk",
        collect=_chunked,
        judge=_judge_chunks,
        damages=LATE_OR_LOST,
        needs=("stream",),
        feature="logprobs",
        cost_requests=2,
        cost_tokens=80,
    ),
)
