"""Logprobs as probabilities, also of sampled tokens: no sum above 1, no value above 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check
from fidelity.checks.conformance_wire import together
from fidelity.checks.plumbing_questions import OPEN
from fidelity.checks.plumbing_shape import edited
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire
    from fidelity.endpoint.replies import TokenLogprob

_SEED = 20_240_607
_TEMPERATURES = (0.3, 1.5)
_TOKENS = 8
_TOPS = 3
_ROUNDING_NATS = 1e-3


async def _sampled(line: Line) -> Wires:
    return await together(
        *(
            line.chat(
                OPEN,
                label=f"chat, temperature {temperature}",
                max_tokens=_TOKENS,
                stream=False,
                temperature=temperature,
                seed=_SEED,
                top_logprobs=_TOPS,
            )
            for temperature in _TEMPERATURES
        )
    )


async def _completed(line: Line) -> Wires:
    return [
        await line.complete(
            "zq xv wy",
            label=f"completion, temperature {_TEMPERATURES[-1]}",
            max_tokens=_TOKENS,
            stream=False,
            temperature=_TEMPERATURES[-1],
            seed=_SEED,
            top_logprobs=_TOPS,
        )
    ]


def _judge(wires: Wires) -> list[str]:
    return [problem for wire in wires for problem in _breaches(wire)][:3]


def _breaches(wire: Wire) -> list[str]:
    entries = wire.answer().logprobs
    if not entries:
        raise shape.Malformed("logprobs were asked for, and the answer has none")
    return [f"{wire.label}: {found}" for n, e in enumerate(entries) for found in _wrong(n, e)]


def _wrong(place: int, entry: TokenLogprob) -> list[str]:
    """A value, its alternatives, and their sum; the chosen token may be one of them."""
    value, name = entry.logprob, f"token {place} ({entry.token!r})"
    if value is None or not math.isfinite(value) or value > _ROUNDING_NATS:
        return [f"{name} has the logprob {value}"]
    values = [top.logprob for top in entry.top]
    if any(math.isnan(other) or other > _ROUNDING_NATS for other in values):
        return [f"{name} has alternatives of the logprobs {values}"]
    if not any(top.token == entry.token for top in entry.top):
        values.append(value)
    total = sum(map(math.exp, values))
    return [f"{name}: probabilities add up to {total:.3f}"] if total > 1 + _ROUNDING_NATS else []


def _entries_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    block = body["choices"][0]["logprobs"]
    found: list[dict[str, Any]] = block.get("content") or []
    return found


def _likely_all(body: dict[str, Any]) -> None:
    """Of every alternative a value that one token alone can have."""
    for entry in _entries_of(body):
        for top in entry["top_logprobs"]:
            top["logprob"] = -0.1
    for tops in body["choices"][0]["logprobs"].get("top_logprobs") or ():
        tops.update(dict.fromkeys(tops, -0.1))


def _above_zero(body: dict[str, Any]) -> None:
    for entry in _entries_of(body):
        entry["logprob"] = 0.5
    block = body["choices"][0]["logprobs"]
    if block.get("token_logprobs"):
        block["token_logprobs"] = [0.5 for _ in block["token_logprobs"]]


_DAMAGES = (
    edited("every alternative is given 0.9", _likely_all),
    edited("values rise above 0", _above_zero),
)
PROBABILITIES = (
    Check(
        name="sampled_values_are_probabilities",
        title="at any temperature no logprob is above 0, and no sum of probabilities above 1",
        collect=_sampled,
        judge=_judge,
        damages=_DAMAGES,
        feature="top_logprobs",
        cost_requests=2,
        cost_tokens=40,
    ),
    Check(
        name="sampled_values_of_completions_are_probabilities",
        title="of a sampled completion no logprob is above 0, and no sum above 1",
        collect=_completed,
        judge=_judge,
        damages=_DAMAGES,
        needs=("completions",),
        feature="top_logprobs",
        cost_tokens=20,
    ),
)
