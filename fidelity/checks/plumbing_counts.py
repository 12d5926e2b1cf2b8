"""Token counts: usage adds up, equals the tokenizer's counts, and is the same in a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import WEATHER, WEATHER_QUESTIONS, counting
from fidelity.checks.plumbing_shape import edited
from fidelity.endpoint import json_shape as shape
from fidelity.probes.dialogue import assistant, called, user

if TYPE_CHECKING:
    from collections.abc import Callable

    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire
    from fidelity.probes.dialogue import Message

_CUT_TOKENS = 9
_CALLED = called("get_weather", {"city": "Paris"}, '{"temp": 17}', call_id="call_weather")
_CONVERSATIONS: dict[str, tuple[list[Message], list[Message]]] = {
    "one turn": ([user("Count from 1 to 12.")], []),
    "system and turns": (
        [
            {"role": "system", "content": "Answer in one word."},
            user("My lucky number is 4711."),
            assistant("OK."),
            user("What is my lucky number?"),
        ],
        [],
    ),
    "other scripts": ([user("Repeat exactly: 日本語 naïve \U0001f680")], []),
    "tool result": ([user(WEATHER_QUESTIONS[0]), *_CALLED], [WEATHER]),
}


async def _counting_both(line: Line) -> Wires:
    return await together(counting(line, stream=False), counting(line, stream=True))


def _numbers(wire: Wire) -> dict[str, int | None]:
    return wire.answer().usage


def _judge_sum(wires: Wires) -> list[str]:
    wires[0].answer()  # raises where the request was refused
    usage: dict[str, Any] = wires[0].json().get("usage") or {}
    if not usage:
        return ["no usage in the answer"]
    prompt, completion, total = (
        shape.whole(usage.get(name), name) or 0
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    problems = []
    if prompt < 1 or completion < 1:
        problems.append(f"{prompt} prompt and {completion} completion tokens for a real answer")
    if prompt + completion != total:
        problems.append(f"{prompt} + {completion} tokens, and total_tokens is {total}")
    read = _numbers(wires[0])
    problems += _part_of(read, "cached_tokens", "prompt_tokens")
    return problems + _part_of(read, "reasoning_tokens", "completion_tokens")


def _part_of(usage: dict[str, int | None], part: str, whole: str) -> list[str]:
    some, everything = usage.get(part), usage.get(whole)
    if some is None or everything is None or some <= everything:
        return []
    return [f"{some} {part} of {everything} {whole}"]


def _judge_same_usage(wires: Wires) -> list[str]:
    whole, stream = (wire.answer() for wire in wires)
    problems = []
    names = ["prompt_tokens"]
    if "".join(whole.text) == "".join(stream.text):
        names.append("completion_tokens")
    for name in names:
        one, other = whole.usage.get(name), stream.usage.get(name)
        if one != other:
            problems.append(f"{name}: {one} one-shot and {other} in the stream of the same request")
    return problems


def _of_tokenizer(name: str) -> Callable[[Line], Any]:
    messages, tools = _CONVERSATIONS[name]

    async def collect(line: Line) -> Wires:
        told = await line.chat(
            messages, label=f"chat, {name}", tools=tools, max_tokens=1, stream=False
        )
        counted = await line.client.tokenize(messages, tools=tools)
        return [told, line.note("tokenizer", count=counted.count)]

    return collect


def _judge_tokenizer(wires: Wires) -> list[str]:
    told, counted = _numbers(wires[0]).get("prompt_tokens"), wires[1].facts["count"]
    if told is None:
        raise Undecided("the server tells no usage to compare with")
    return [] if told == counted else [f"usage says {told} prompt tokens, the tokenizer {counted}"]


async def _logprobs(line: Line) -> Wires:
    return [await counting(line, stream=False, max_tokens=_CUT_TOKENS, top_logprobs=2)]


def _judge_generated(wires: Wires) -> list[str]:
    draft = wires[0].answer()
    told = draft.usage.get("completion_tokens")
    if told is None or draft.logprobs is None:
        raise Undecided("no usage, or no logprobs to count")
    given = len(draft.logprobs)
    # of an answer that was not cut, the token that ends it may have no entry of its own
    if given in {told, told - (draft.finish_reason == "stop")}:
        return []
    return [f"usage says {told} completion tokens, and {given} have logprobs"]


def _one_more(body: dict[str, Any]) -> None:
    body["usage"]["completion_tokens"] += 2


def _prompt_more(body: dict[str, Any]) -> None:
    body["usage"]["prompt_tokens"] += 1


_ROUND_TRIPS = ("The tide of 1842 rose twice.", "naïve 日本語 \U0001f680\n\n  indented", "a\tb  c")


async def _round_trips(line: Line) -> Wires:
    notes = []
    for text in _ROUND_TRIPS:
        counted = await line.client.tokenize(prompt=text)
        back = await line.client.detokenize(counted.tokens or ())
        notes.append(line.note("round trip", text=text, back=back, count=counted.count))
    return notes


def _judge_round_trips(wires: Wires) -> list[str]:
    """A leading space is the tokenizer's own business; nothing else is."""
    return [
        f"{wire.facts['text']!r} came back as {wire.facts['back']!r}"
        for wire in wires
        if wire.facts["back"].removeprefix(" ") != wire.facts["text"]
    ]


def _cut_short(wires: Wires) -> Wires:
    wire = wires[1]
    facts = {**wire.facts, "back": wire.facts["back"].replace("\U0001f680", "\ufffd")}
    return [type(wire)(label=wire.label, path="", facts=facts)]


COUNTS = (
    Check(
        name="usage_adds_up",
        title="prompt and completion tokens add up to total_tokens, parts are no larger",
        collect=_counting_both,
        judge=_judge_sum,
        damages=(edited("two completion tokens are added", _one_more),),
        feature="usage",
    ),
    Check(
        name="stream_tells_the_same_usage",
        title="usage of a stream equals that of the same request in one piece",
        collect=_counting_both,
        judge=_judge_same_usage,
        damages=(edited("a prompt token is added", _prompt_more),),
        needs=("usage",),
    ),
    *(
        Check(
            name=f"prompt_tokens_equal_the_tokenizer[{name}]".replace(" ", "_"),
            title=f"usage counts a prompt as the tokenizer does: {name}",
            collect=_of_tokenizer(name),
            judge=_judge_tokenizer,
            damages=(edited("a prompt token is added", _prompt_more),),
            needs=("tokenize", "usage", "tools") if tools else ("tokenize", "usage"),
        )
        for name, (_, tools) in _CONVERSATIONS.items()
    ),
    Check(
        name="completion_tokens_are_those_generated",
        title="usage counts as many completion tokens as have logprobs",
        collect=_logprobs,
        judge=_judge_generated,
        damages=(edited("two completion tokens are added", _one_more),),
        needs=("logprobs", "usage"),
    ),
    Check(
        name="tokenizer_round_trip",
        title="detokenize returns the text that tokenize was given",
        collect=_round_trips,
        judge=_judge_round_trips,
        damages=(Damage(what="a character is lost", apply=_cut_short),),
        needs=("tokenize", "detokenize"),
        cost_tokens=0,
        cost_requests=6,
    ),
)
