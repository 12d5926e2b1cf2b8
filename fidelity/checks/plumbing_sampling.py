"""Parameters that are accepted must matter: temperature, seed, top_p, penalties.

A server that does not have one refuses it in words; one that takes it and does nothing is wrong.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import COUNTING_ON, OPEN
from fidelity.probes.dialogue import user

if TYPE_CHECKING:
    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire

_HOT = 1.5
_TOKENS = 16
_SAMPLES = 6
_SEED = 20_240_607
_PAIRS = 3
_LITTLE_TOP_P = 1e-4
_REPETITIVE = [user("Repeat exactly: la la la la la la la la la la la la")]
_PENALTY = 2.0
"""The largest that the API allows; a word said ten times loses 20 nats."""
_REPEATED = 5
_REPETITIVE_TOKENS = 64
"""Long enough for a weak model to repeat itself, whatever it was asked."""


async def _sample(line: Line, copy: int, *, temperature: float = _HOT, **options: Any) -> Wire:
    options.setdefault("label", f"temperature {temperature:g}")
    return await line.chat(
        OPEN, max_tokens=_TOKENS, temperature=temperature, stream=False, copy=copy, **options
    )


def _text(wire: Wire) -> str:
    draft = wire.answer()
    return "".join(draft.reasoning) + "".join(draft.text)


def _equalled(what: str) -> Damage:
    """All answers become that of the first."""

    def apply(wires: Wires) -> Wires:
        return [wire.with_json(wires[0].json()) for wire in wires]

    return Damage(what=what, apply=apply)


def _scattered(wires: Wires) -> Wires:
    damaged = []
    for index, wire in enumerate(wires):
        body = wire.json()
        body["choices"][0]["message"]["content"] = f"{index} and so on"
        damaged.append(wire.with_json(body))
    return damaged


async def _hot(line: Line) -> Wires:
    return await together(*(_sample(line, copy) for copy in range(_SAMPLES)))


def _judge_varied(wires: Wires) -> list[str]:
    texts = {_text(wire) for wire in wires}
    if len(texts) > 1:
        return []
    return [f"{len(wires)} samples at temperature {_HOT} are one text: {texts.pop()!r}"]


async def _greedy(line: Line) -> Wires:
    return await together(*(_sample(line, copy, temperature=0.0) for copy in range(_PAIRS)))


def _judge_repeats(wires: Wires) -> list[str]:
    """A near-tie may fall either way once; a sampled answer differs each time."""
    texts = [_text(wire) for wire in wires]
    if len(set(texts)) == len(texts):
        return [f"{wires[0].label}: {len(texts)} answers, all different: {texts[:2]}"]
    return []


async def _one_seed(line: Line) -> Wires:
    rounds = [
        await together(
            *(_sample(line, n, seed=_SEED + p, label=f"seed {_SEED + p}") for p in range(_PAIRS))
        )
        for n in (0, 1)
    ]
    return [wire for pair in zip(*rounds, strict=True) for wire in pair]


def _judge_seed(wires: Wires) -> list[str]:
    texts = [_text(wire) for wire in wires]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    apart = [pair for pair in pairs if pair[0] != pair[1]]
    if 2 * len(apart) <= len(pairs):
        return []
    return [f"{len(apart)} of {len(pairs)} pairs with one seed differ: {apart[0]}"]


async def _seeds(line: Line) -> Wires:
    return await together(
        *(_sample(line, 0, seed=_SEED + n, label=f"seed {_SEED + n}") for n in range(_SAMPLES))
    )


def _judge_seeds(wires: Wires) -> list[str]:
    texts = {_text(wire) for wire in wires}
    return [] if len(texts) > 1 else [f"{len(wires)} seeds give one text: {texts.pop()!r}"]


async def _narrow(line: Line) -> Wires:
    return await together(
        *(
            _sample(line, copy, label=f"top_p {_LITTLE_TOP_P}", extra={"top_p": _LITTLE_TOP_P})
            for copy in range(_PAIRS)
        )
    )


async def _penalised(line: Line) -> Wires:
    return await together(
        *(
            line.chat(
                _REPETITIVE,
                label="with frequency_penalty" if penalty else "without",
                extra={"frequency_penalty": penalty} if penalty else {},
                max_tokens=_REPETITIVE_TOKENS,
                temperature=0.0,
                stream=False,
            )
            for penalty in (0.0, _PENALTY)
        )
    )


def _judge_penalty(wires: Wires) -> list[str]:
    plain, other = (_text(wire) for wire in wires)
    if max(Counter(plain.split()).values(), default=0) < _REPEATED:
        raise Undecided(f"the model repeats nothing that could be penalised: {plain!r}")
    if plain != other:
        return []
    return [f"a frequency_penalty of {_PENALTY} changes nothing: {other!r}"]


async def _mixed(line: Line) -> Wires:
    """Greedy, penalised and sampled requests at once, and the greedy one by itself before."""

    def greedy(copy: int) -> Any:
        label = "greedy among others" if copy else "greedy by itself"
        return line.chat(
            COUNTING_ON, label=label, max_tokens=24, temperature=0.0, stream=False, copy=copy
        )

    def penalised(copy: int) -> Any:
        return line.chat(
            COUNTING_ON,
            label="penalised",
            max_tokens=24,
            temperature=1.0,
            stream=False,
            copy=copy,
            extra={"frequency_penalty": _PENALTY, "presence_penalty": _PENALTY},
        )

    alone = [await greedy(0), await greedy(9)]  # one after the other: by itself means alone
    crowd = await together(
        greedy(1), penalised(1), _sample(line, 11), greedy(2), penalised(2), greedy(3)
    )
    return [*alone, *(crowd[place] for place in (0, 3, 5))]


def _judge_mixed(wires: Wires) -> list[str]:
    first, again, *crowd = (_text(wire) for wire in wires)
    if first != again:
        raise Undecided("two equal greedy requests gave two texts: nothing to compare with")
    apart = [text for text in crowd if text != first]
    if not apart:
        return []
    return [f"among other requests a greedy one says {apart[0]!r}, by itself {first!r}"]


def _neighbours(wires: Wires) -> Wires:
    body = wires[2].json()
    body["choices"][0]["message"]["content"] = "what the penalised one said"
    return [*wires[:2], wires[2].with_json(body), *wires[3:]]


SAMPLING = (
    Check(
        name="temperature_matters",
        title=f"samples at temperature {_HOT} differ",
        collect=_hot,
        judge=_judge_varied,
        damages=(_equalled("all samples are made equal"),),
        cost_requests=_SAMPLES,
        cost_tokens=_SAMPLES * 20,
    ),
    Check(
        name="greedy_repeats_itself",
        title="at temperature 0 an answer repeats itself",
        collect=_greedy,
        judge=_judge_repeats,
        damages=(Damage(what="all answers are made different", apply=_scattered),),
        cost_requests=_PAIRS,
    ),
    Check(
        name="seed_repeats",
        title="two samples with one seed are equal",
        collect=_one_seed,
        judge=_judge_seed,
        damages=(Damage(what="all samples are made different", apply=_scattered),),
        feature="seed",
        cost_requests=2 * _PAIRS,
        cost_tokens=2 * _PAIRS * 20,
    ),
    Check(
        name="seeds_differ",
        title="samples with different seeds differ",
        collect=_seeds,
        judge=_judge_seeds,
        damages=(_equalled("all samples are made equal"),),
        feature="seed",
        cost_requests=_SAMPLES,
        cost_tokens=_SAMPLES * 20,
    ),
    Check(
        name="top_p_matters",
        title=f"top_p {_LITTLE_TOP_P} leaves one text, however hot",
        collect=_narrow,
        judge=_judge_repeats,
        damages=(Damage(what="all samples are made different", apply=_scattered),),
        optional=True,
        cost_requests=_PAIRS,
    ),
    Check(
        name="frequency_penalty_matters",
        title="a frequency_penalty changes a repetitive answer",
        collect=_penalised,
        judge=_judge_penalty,
        damages=(_equalled("both answers are made equal"),),
        optional=True,
        cost_requests=2,
        cost_tokens=200,
    ),
    Check(
        name="parameters_stay_with_their_request",
        title="a greedy request among penalised and sampled ones answers as by itself",
        collect=_mixed,
        judge=_judge_mixed,
        damages=(Damage(what="one gets its neighbour's answer", apply=_neighbours),),
        optional=True,
        cost_requests=8,
        cost_tokens=160,
    ),
)
