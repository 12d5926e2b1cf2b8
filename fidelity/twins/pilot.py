"""Asked once before the twins: how many alternatives a token, and where an answer begins to tell.

A model that thinks first, or says "Okay", answers alike whatever the prompt tells: neither an
altered token nor a lost state shows there. So answers are as much longer as that beginning is.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from fidelity.probes.dialogue import user
from fidelity.probes.probe import Probe, ProbeResult
from fidelity.twins.answers import Heard
from fidelity.twins.asking import generate
from fidelity.twins.judging import parting_of
from fidelity.twins.plans import Plan
from fidelity.twins.prompts import prompt_of
from fidelity.twins.room import PROVEN_TOPS

if TYPE_CHECKING:
    from fidelity.endpoint.client import Client
    from fidelity.measure import Measure
    from fidelity.probes.probe import Ask
    from fidelity.records import Trial
    from fidelity.twins.room import Room

LENGTH_TOKENS = 120
STEPS = (8, 32, 128)
"""Tokens that are generated to find where two answers part; beyond, they are taken to at once."""
_REFUSALS = frozenset({400, 413, 422})
_found: weakref.WeakKeyDictionary[Client, tuple[int, int]] = weakref.WeakKeyDictionary()


def piloted(measure: Measure, room: Room) -> Room:
    """Return the room with what the pilot finds; asked once of a deployment and run."""
    if measure.planning:
        return room
    client = measure.deployment.client
    if client not in _found:
        (trial,) = measure.ask([_probe(room)], arm="pilot")
        if trial.ok is None:
            return room
        _found[client] = _told(trial, room)
    tops, answers_at = _found[client]
    return replace(room, tops=tops, answers_at=answers_at)


def _told(trial: Trial, room: Room) -> tuple[int, int]:
    cell = trial.cell
    return int(cell.get("tops", room.tops)), int(cell.get("answers_at", 0))


def _probe(room: Room) -> Probe:
    async def script(ask: Ask) -> ProbeResult:
        tops = await _tops(ask, room)
        at = await _answers_at(ask, replace(room, tops=tops))
        return ProbeResult(ok=True, cell={"tops": tops, "answers_at": at})

    return Probe(
        family="twin pilot",
        key="pilot",
        script=script,
        recipe={"builder": "twin pilot"},
        expected="two facts are answered otherwise",
        cost_tokens=2 * len(STEPS) * (LENGTH_TOKENS + max(STEPS)),
        cost_requests=1 + 2 * len(STEPS),
    )


async def _tops(ask: Ask, room: Room) -> int:
    """Return how many alternatives to ask for: all, or as many as discovery has seen given."""
    if not room.graded:
        return room.tops
    reply = await ask.client.chat(
        [user("Hello")],
        max_tokens=1,
        temperature=0.0,
        stream=False,
        top_logprobs=room.tops,
        allow_status=_REFUSALS,
    )
    return room.tops if reply.status == 200 else PROVEN_TOPS


async def _answers_at(ask: Ask, room: Room) -> int:
    """Return at which generated token the answers to two facts part; 0 when nowhere."""
    plan = Plan(seed="pilot", length=LENGTH_TOKENS, tokens=max(STEPS))
    prompt = await prompt_of(ask, room, plan, salt="pilot", altered=True)
    for tokens in STEPS:
        one, other = [
            Heard(
                reply=await generate(
                    ask, room, prompt, tokens, label=f"pilot, {tokens} tokens", altered=altered
                )
            )
            for altered in (False, True)
        ]
        found = parting_of(one, other, room)
        if not found.agrees:
            return found.at if found.first is None else found.first
        ended = one.reply.completion_tokens
        if ended is not None and ended < tokens:
            break
    return 0
