"""A presence penalty must show where an answer is uncertain: greedily, or hot with a seed.

A model that is sure of its answer says the same with two nats against a repetition. At the highest
temperature nothing is sure, and with a seed the same draws come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.probes.dialogue import user

if TYPE_CHECKING:
    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire

_PENALTY = 2.0
_TOKENS = 32
_NONSENSE = ("zq xv wy", "qwz xkj vbn pfl", "uvx jyr kxq zzt wmb")
_HOTTEST = 2.0
_SEEDS = (1, 2)
_GREEDY = 2 * len(_NONSENSE)
"""Wires of greedy pairs, without and with the penalty; behind them triples of one seed each."""


def _text(wire: Wire) -> str:
    draft = wire.answer()
    return "".join(draft.reasoning) + "".join(draft.text)


async def _collect(line: Line) -> Wires:
    async def ask(question: str, penalty: float, *, copy: int = 0, **options: Any) -> Wire:
        told = f"{question}, presence_penalty {penalty:g}"
        return await line.chat(
            [user(question)],
            label=f"{told}, again" if copy else told,
            max_tokens=_TOKENS,
            stream=False,
            copy=copy,
            extra={"presence_penalty": penalty},
            **options,
        )

    greedy = [
        ask(nonsense, penalty, temperature=0.0)
        for nonsense in _NONSENSE
        for penalty in (0.0, _PENALTY)
    ]
    hot = [
        ask(_NONSENSE[0], penalty, copy=copy, temperature=_HOTTEST, seed=seed)
        for seed in _SEEDS
        for penalty, copy in ((0.0, 0), (0.0, 1), (_PENALTY, 0))
    ]
    return await together(*greedy, *hot)


def _judge(wires: Wires) -> list[str]:
    texts = [_text(wire) for wire in wires]
    greedy, hot = texts[:_GREEDY], texts[_GREEDY:]
    if any(plain != other for plain, other in zip(greedy[::2], greedy[1::2], strict=True)):
        return []
    drawn = zip(hot[::3], hot[1::3], hot[2::3], strict=True)
    # uncertain is what heat changes, and comparable what a seed gives twice
    repeated = [(plain, other) for plain, again, other in drawn if plain == again != greedy[0]]
    if any(plain != other for plain, other in repeated):
        return []
    if not repeated:
        raise Undecided(
            "greedy answers are too sure to show a penalty, and no seed gave another text twice"
        )
    told = f"none of {len(_NONSENSE)} greedy answers, and none of {len(repeated)} hot ones"
    return [f"a presence_penalty of {_PENALTY} changes {told} with a seed: {greedy[1]!r}"]


def _lost(wires: Wires) -> Wires:
    pairs = zip(wires[:_GREEDY:2], wires[1:_GREEDY:2], strict=True)
    greedy = [wire for plain, other in pairs for wire in (plain, other.with_json(plain.json()))]
    triples = zip(*(wires[_GREEDY + place :: 3] for place in range(3)), strict=True)
    hot = [
        wire
        for plain, again, other in triples
        for wire in (plain, again.with_json(plain.json()), other.with_json(plain.json()))
    ]
    return [*greedy, *hot]


PRESENCE_PENALTY = Check(
    name="presence_penalty_matters",
    title="a presence_penalty changes an uncertain answer, or is refused",
    collect=_collect,
    judge=_judge,
    damages=(Damage(what="the penalty is made to change nothing", apply=_lost),),
    refusable=True,
    cost_requests=_GREEDY + 3 * len(_SEEDS),
    cost_tokens=600,
)
