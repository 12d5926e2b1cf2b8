"""Where an answer ends: max_tokens to the token, stop strings to the character, finish reasons."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import COUNTING_ON, counting
from fidelity.checks.plumbing_shape import edited
from fidelity.probes.dialogue import user

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.checks.conformance import Collect, Judge, Wires
    from fidelity.checks.conformance_wire import Line, Wire

LIMITS = (1, 2, 7, 16)
LONG_TOKENS = 400
_STOP_BASE_TOKENS = 40
_GREETING_TOKENS = 200
"""A weak model takes its time to say hello."""


async def _on(line: Line, *, max_tokens: int, stream: bool, label: str, **options: Any) -> Wire:
    return await line.chat(
        COUNTING_ON,
        label=label,
        max_tokens=max_tokens,
        stream=stream,
        temperature=0.0,
        **options,
    )


# ---- max_tokens and finish reasons


def _limited(limit: int) -> Collect:
    async def collect(line: Line) -> Wires:
        return await together(
            *(
                _on(line, max_tokens=limit, stream=stream, label=f"max_tokens {limit}")
                for stream in (False, True)
            )
        )

    return collect


def _judge_limit(limit: int) -> Judge:
    def judge(wires: Wires) -> list[str]:
        return [problem for wire in wires for problem in _limit_breaches(wire, limit)]

    return judge


def _limit_breaches(wire: Wire, limit: int) -> list[str]:
    draft = wire.answer()
    how = "stream" if wire.streamed else "one-shot"
    told = draft.usage.get("completion_tokens")
    if told is not None and told > limit:
        return [f"{told} completion tokens for max_tokens {limit} ({how})"]
    if draft.finish_reason == "length":
        short = told is not None and told < limit
        return [f"finish_reason 'length' at {told} of {limit} tokens ({how})"] if short else []
    if told == limit or told is None:
        return [f"finish_reason {draft.finish_reason!r} at max_tokens {limit} ({how})"]
    raise Undecided(f"the answer ended by itself after {told} tokens, before {limit}")


async def _ends(line: Line) -> Wires:
    """Ask to count and to greet: the one or the other ends by itself."""
    return await together(
        counting(line, stream=False),
        counting(line, stream=True),
        *(
            line.chat(
                [user("Hello!")],
                label=f"greeting, {'stream' if stream else 'one-shot'}",
                max_tokens=_GREETING_TOKENS,
                stream=stream,
                temperature=0.0,
            )
            for stream in (False, True)
        ),
    )


def _judge_ends(wires: Wires) -> list[str]:
    problems, ended = [], False
    for wire in wires:
        draft = wire.answer()
        told = draft.usage.get("completion_tokens")
        limit = wire.sent.get("max_tokens") or wire.sent.get("max_completion_tokens")
        full = told is not None and limit is not None and told >= limit
        if not full and draft.finish_reason == "length":
            problems.append(f"finish_reason 'length' after {told} of {limit} tokens")
        elif draft.finish_reason not in {"stop", "length"}:
            problems.append(f"finish_reason {draft.finish_reason!r} of a plain answer")
        ended = ended or draft.finish_reason == "stop"
    if not problems and not ended:
        raise Undecided(f"no answer ended by itself within {_GREETING_TOKENS} tokens")
    return problems


async def _by_either_name(line: Line) -> Wires:
    named = "max_completion_tokens"
    old = "max_tokens"
    if line.client.server.quirks.max_tokens_field == named:
        named, old = old, named
    whole = await _on(
        line, max_tokens=5, stream=False, label=named, extra={named: 5}, without=(old,)
    )
    return [whole]


async def _unlimited(line: Line) -> Wires:
    wires = []
    limited = await counting(line, stream=False, max_tokens=LONG_TOKENS)
    wires.append(limited)
    if limited.status == 200 and limited.answer().finish_reason == "stop":
        # only a model that ends by itself is asked without a bound
        without = ("max_tokens", "max_completion_tokens")
        wires.append(await counting(line, stream=False, max_tokens=LONG_TOKENS, without=without))
    return wires


def _judge_unlimited(wires: Wires) -> list[str]:
    limited = wires[0].answer()
    if len(wires) < 2:
        raise Undecided(f"the answer does not end by itself within {LONG_TOKENS} tokens")
    free = wires[1].answer()
    text, whole = "".join(free.text), "".join(limited.text)
    cut = len(text) < len(whole) and whole.startswith(text)
    if cut and free.finish_reason != "length":
        told = free.usage.get("completion_tokens")
        how = f"{told} tokens with finish_reason {free.finish_reason!r}, in the middle of its text"
        return [f"without max_tokens the answer ends after {how}"]
    return []


def _over(body: dict[str, Any]) -> None:
    body["usage"]["completion_tokens"] += 1


def _as_stop(body: dict[str, Any]) -> None:
    body["choices"][0]["finish_reason"] = "stop"


def _all_as_length(wires: Wires) -> Wires:
    damaged = []
    for wire in wires:
        if not wire.streamed and wire.choice().get("finish_reason") == "stop":
            body = wire.json()
            body["choices"][0]["finish_reason"] = "length"
            damaged.append(wire.with_json(body))
        else:
            damaged.append(wire)
    return damaged


def _halved(wires: Wires) -> Wires:
    body = wires[1].json()
    message = body["choices"][0]["message"]
    message["content"] = message["content"][: len(message["content"]) // 2]
    return [wires[0], wires[1].with_json(body)]


ENDS = (
    *(
        Check(
            name=f"max_tokens_is_exact[{limit}]",
            title=f"an answer cut at max_tokens {limit} has so many tokens, and says 'length'",
            collect=_limited(limit),
            judge=_judge_limit(limit),
            damages=(
                edited("a token more is counted", _over),
                edited("finish_reason says stop", _as_stop),
            ),
            cost_requests=2,
        )
        for limit in LIMITS
    ),
    Check(
        name="finish_reason_is_stop_at_the_end",
        title="an answer that ends by itself says 'stop'",
        collect=_ends,
        judge=_judge_ends,
        damages=(Damage(what="finish_reason says length", apply=_all_as_length),),
        cost_requests=4,
    ),
    Check(
        name="max_completion_tokens_is_obeyed",
        title="the other name of max_tokens limits the answer too, or is refused",
        collect=_by_either_name,
        judge=_judge_limit(5),
        damages=(edited("a token more is counted", _over),),
        optional=True,
    ),
    Check(
        name="no_hidden_limit",
        title="without max_tokens an answer ends where it ends with a large one, or says 'length'",
        collect=_unlimited,
        judge=_judge_unlimited,
        damages=(Damage(what="the answer is cut in half", apply=_halved),),
        cost_requests=2,
    ),
)


# ---- stop strings


def stops_within(text: str) -> list[str]:
    """Return stop strings whose first place in a text lies in its later half, some across words."""
    middle = len(text) // 2
    found = [text[at : at + size] for at in range(middle, middle + 4) for size in (1, 2, 3, 5)]
    late = [stop for stop in found if stop.strip() and text.find(stop) >= middle // 2]
    return sorted(dict.fromkeys(late), key=len)[-5:]


async def _base(line: Line) -> list[Wire]:
    return await together(
        *(
            _on(line, max_tokens=_STOP_BASE_TOKENS, stream=False, label=label, copy=copy)
            for copy, label in enumerate(("unstopped", "unstopped, again"))
        )
    )


def _text(wire: Wire) -> str:
    return "".join(wire.answer().text)


def _stopped(*, stream: bool) -> Collect:
    async def collect(line: Line) -> Wires:
        base = await _base(line)
        stops = [[stop] for stop in stops_within(_text(base[0]))]
        return [*base, *(await _ask_stops(line, stops, stream=stream))]

    return collect


async def _ask_stops(line: Line, stops: Sequence[Any], *, stream: bool) -> list[Wire]:
    return await together(
        *(
            _on(
                line, max_tokens=_STOP_BASE_TOKENS, stream=stream, label=f"stop {stop!r}", stop=stop
            )
            for stop in stops
        )
    )


async def _several(line: Line) -> Wires:
    base = await _base(line)
    found = stops_within(_text(base[0]))
    if len(found) < 2:
        return base
    wanted: list[Any] = [["\u2603\u2603", found[-1]], [found[0], found[-1]], found[-1]]
    return [*base, *(await _ask_stops(line, wanted, stream=False))]


async def _never_met(line: Line) -> Wires:
    base = await _base(line)
    tail = _text(base[0])[-2:]
    stop = [f"{tail}\u2603"]
    wires = await together(
        *(
            _on(line, max_tokens=_STOP_BASE_TOKENS, stream=stream, label=f"stop {stop}", stop=stop)
            for stream in (False, True)
        )
    )
    return [*base, *wires]


def _judge_stops(wires: Wires) -> list[str]:
    text = _text(wires[0])
    if _text(wires[1]) != text:
        raise Undecided("two equal greedy requests gave two texts: nothing to compare with")
    if len(wires) < 3:
        raise Undecided(f"the answer {text[:60]!r} is too short to stop inside it")
    problems = []
    for wire in wires[2:]:
        wanted = wire.sent["stop"]
        stops = [wanted] if isinstance(wanted, str) else wanted
        places = [text.find(stop) for stop in stops if stop in text]
        expected, reason = text, wires[0].answer().finish_reason
        if places:
            expected, reason = text[: min(places)], "stop"
        draft = wire.answer()
        got = "".join(draft.text)
        how = "stream" if wire.streamed else "one-shot"
        if got != expected:
            problems.append(f"stop {wanted!r} ({how}): {got[-40:]!r} and not {expected[-40:]!r}")
        elif draft.finish_reason != reason:
            problems.append(f"stop {wanted!r} ({how}): finish_reason {draft.finish_reason!r}")
    return problems


def _leaked(wires: Wires) -> Wires:
    """Put the first character of the stop string behind the text, as a leak of its prefix."""
    wire = wires[2]
    stop = wire.sent["stop"][0]
    if wire.streamed:
        event = {"choices": [{"index": 0, "delta": {"content": stop[0]}}]}
        events = [json.dumps(event), *wire.stream.data]
        return [*wires[:2], wire.with_events([*events, "[DONE]"]), *wires[3:]]
    body = wire.json()
    body["choices"][0]["message"]["content"] += stop[0]
    return [*wires[:2], wire.with_json(body), *wires[3:]]


_LEAK = Damage(what="the first character of a stop string is left in the text", apply=_leaked)
STOPS = (
    Check(
        name="stop_string_is_excluded",
        title="an answer ends right before its stop string, wherever tokens lie",
        collect=_stopped(stream=False),
        judge=_judge_stops,
        damages=(_LEAK,),
        feature="stop",
        cost_requests=5,
    ),
    Check(
        name="stop_string_is_excluded_from_streams",
        title="a streamed answer ends right before its stop string, and leaks no part of it",
        collect=_stopped(stream=True),
        judge=_judge_stops,
        damages=(_LEAK,),
        feature="stop",
        cost_requests=5,
    ),
    Check(
        name="first_of_several_stops_counts",
        title="of several stop strings the first in the text counts; one may be given as a text",
        collect=_several,
        judge=_judge_stops,
        damages=(_LEAK,),
        feature="stop",
        cost_requests=3,
    ),
    Check(
        name="nothing_is_held_back_for_a_stop_that_never_comes",
        title="text that begins like a stop string is released at the end of the answer",
        collect=_never_met,
        judge=_judge_stops,
        damages=(_LEAK,),
        feature="stop",
        cost_requests=2,
    ),
)
