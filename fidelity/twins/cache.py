"""The prefix cache: cold against cached, before and after eviction, before and after a flush."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from fidelity.checks.together import together
from fidelity.errors import TrafficRefused
from fidelity.probes.dialogue import user
from fidelity.probes.filler import filler_of, numbered
from fidelity.twins import proofs
from fidelity.twins.answers import Heard
from fidelity.twins.asking import generate
from fidelity.twins.plans import Sweep
from fidelity.twins.prompts import prompt_of
from fidelity.twins.twin import Arms, Twin
from fidelity.words import Traffic

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply
    from fidelity.probes.probe import Ask
    from fidelity.twins.plans import Plan
    from fidelity.twins.prompts import Prompt
    from fidelity.twins.room import Room
    from fidelity.twins.scene import Scene

FLOOD_LINES = 100
"""Of one prompt of the flood: some 2,000 tokens."""
FLOOD_LINE_TOKENS = 10
"""Where usage does not tell: fewer than they have, so that the flood is large enough."""
FLOOD_AT_ONCE = 4
FLOOD_SHARE = 1.15
"""Of the pools, by which a flood is larger: the flooded prompts are the least recently used."""
ASSUMED_POOL_TOKENS = 131_072


async def cached_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Send one prompt three times: the first is cold, the others read it from the cache."""
    prompt = await prompt_of(ask, room, plan, salt="cached", altered=scene.damaged)
    cold, hit, again = [
        await generate(ask, room, prompt, plan.tokens, label=label)
        for label in ("cold", "cached", "cached, again")
    ]
    return Arms(
        one=Heard(reply=cold),
        other=await _altered(ask, room, prompt, plan) if scene.damaged else Heard(reply=hit),
        null=(Heard(reply=hit), Heard(reply=again)),
        doubt=proofs.first_of(
            proofs.cold(cold, prompt.shared),
            proofs.cached(hit, prompt.shared),
            proofs.cached_alike(hit, again),
        ),
        cell={"cached_tokens": hit.cached_tokens or 0},
        seen_at=0 if scene.damaged else None,
        paths=("cold", "cached"),
    )


async def evicted_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Send a prompt cold and cached, flood the pools, and send it cold and cached again."""

    async def flood() -> None:
        await flood_pools(ask, room, seed=f"{plan.seed} {scene.damaged}")

    return await _around(ask, room, plan, scene, flood, name="evicted")


async def flushed_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Send a prompt cold and cached, flush the cache, and send it cold and cached again."""
    return await _around(ask, room, plan, scene, ask.client.flush_cache, name="flushed")


def flood_tokens(room: Room) -> int:
    """Return how many tokens push everything else out of the pools."""
    return int((room.pool_tokens or ASSUMED_POOL_TOKENS) * FLOOD_SHARE)


async def flood_pools(ask: Ask, room: Room, *, seed: str) -> None:
    """Prefill more tokens than the pools hold, all of them new, as usage counts them."""
    wanted = flood_tokens(room)
    numbers = itertools.count()
    sent = [0.0]

    async def send() -> None:
        while sent[0] < wanted:
            text = numbered(filler_of(f"flood {seed} {next(numbers)}").sentences(FLOOD_LINES))
            reply = await ask.client.chat(
                [user(text)], max_tokens=1, stream=False, traffic=Traffic.DISRUPTIVE
            )
            sent[0] += reply.prompt_tokens or FLOOD_LINES * FLOOD_LINE_TOKENS

    await together([send] * FLOOD_AT_ONCE)


async def _around(
    ask: Ask, room: Room, plan: Plan, scene: Scene, event: object, *, name: str
) -> Arms:
    """Compare cold with cold and cached with cached, before and after an event.

    That way what a cache hit itself does wrong is the same on both sides.
    """
    async with scene.member():
        async with scene.alone():
            prompt = await prompt_of(
                ask, room, plan, salt=f"{name} {scene.damaged}", altered=scene.damaged
            )
            cold, hit, again = [
                await generate(ask, room, prompt, plan.tokens, label=label)
                for label in ("cold", "cached", "cached, again")
            ]
        if not scene.damaged and not await scene.meet(event):  # type: ignore[arg-type]
            raise TrafficRefused(f"the event of the twin {name!r} did not happen")
        async with scene.alone():
            if scene.damaged:
                after = [await generate(ask, room, prompt, plan.tokens, label="x", altered=True)]
            else:
                after = [
                    await generate(ask, room, prompt, plan.tokens, label=f"{label}, {name}")
                    for label in ("cold", "cached")
                ]
    return Arms(
        one=Heard(reply=cold),
        other=Heard(reply=after[0]),
        more=() if scene.damaged else ((Heard(reply=hit), Heard(reply=after[1])),),
        null=(Heard(reply=hit), Heard(reply=again)),
        doubt=proofs.first_of(
            proofs.cold(cold, prompt.shared),
            proofs.cached(hit, prompt.shared),
            _gone(after[0], prompt, name),
            *(proofs.cached(reply, prompt.shared) for reply in after[1:]),
        ),
        cell={"cached_tokens": hit.cached_tokens or 0},
        seen_at=0 if scene.damaged else None,
        paths=(name,),
    )


def _gone(reply: Reply, prompt: Prompt, name: str) -> str:
    if reply.cached_tokens is not None and reply.cached_tokens > prompt.shared:
        return f"{reply.cached_tokens} tokens of the prompt are still cached: it was not {name}"
    return proofs.cold(reply, prompt.shared)


async def _altered(ask: Ask, room: Room, prompt: Prompt, plan: Plan) -> Heard:
    reply = await generate(ask, room, prompt, plan.tokens, label="one token altered", altered=True)
    return Heard(reply=reply)


CACHED = Twin(
    name="cached",
    claim="a cached prefix answers as a cold one",
    ask=cached_arms,
    sweep=Sweep(
        low=81,
        high=330,
        answers=(6,),
        one_chunk=True,
        past_a_page=True,
        long_in_one_chunk=True,
    ),
    quick=64,
    standard=160,
    path="prefix_cache",
    needs=("cached_tokens",),
    requests=3,
)
EVICTED = Twin(
    name="evicted",
    claim="a prompt is answered as before after its prefix was evicted",
    ask=evicted_arms,
    sweep=Sweep(low=81, high=330, answers=(8,), one_chunk=True, past_a_page=True),
    path="prefix_cache",
    needs=("cached_tokens",),
    traffic=Traffic.DISRUPTIVE,
    gathers=True,
    requests=5,
    event_tokens=flood_tokens,
)
FLUSHED = Twin(
    name="flushed",
    claim="a prompt is answered as before after the cache was flushed",
    ask=flushed_arms,
    sweep=Sweep(low=81, high=330, answers=(8,), one_chunk=True, past_a_page=True),
    path="flush",
    needs=("flush", "cached_tokens"),
    traffic=Traffic.DISRUPTIVE,
    gathers=True,
    requests=5,
)
