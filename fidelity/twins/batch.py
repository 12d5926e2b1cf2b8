"""What shares the batch: strangers, their order, their sampling parameters."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from fidelity.checks.together import together
from fidelity.twins import proofs
from fidelity.twins.answers import Heard
from fidelity.twins.asking import generate
from fidelity.twins.plans import Sweep
from fidelity.twins.prompts import prompt_of
from fidelity.twins.strangers import strangers
from fidelity.twins.twin import Arms, Twin
from fidelity.words import Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.probes.probe import Ask
    from fidelity.twins.plans import Plan
    from fidelity.twins.prompts import Prompt
    from fidelity.twins.room import Room
    from fidelity.twins.scene import Scene

TOGETHER = 3
"""Requests whose order is turned round."""
STAGGER_S = 0.004
"""Between them, so that they arrive in the order in which they are sent."""
SEED = 20_431


async def batched_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Send one prompt alone, twice, and once beside strangers that decode."""
    count = int(plan.kind.partition("=")[2] or 3)
    return await _beside(ask, room, plan, scene, name="batched", count=count, mixed=False)


async def mixed_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Send one prompt alone, twice, and once beside strangers with other sampling parameters."""
    return await _beside(ask, room, plan, scene, name="mixed", count=5, mixed=True)


async def _beside(
    ask: Ask, room: Room, plan: Plan, scene: Scene, *, name: str, count: int, mixed: bool
) -> Arms:
    """All arms read the prompt from the cache alike: the first request warms it."""
    prompt = await prompt_of(ask, room, plan, salt=f"{name} {scene.damaged}", altered=scene.damaged)
    sampled = plan.kind == "draw=seeded" and not scene.damaged
    drawn: dict[str, Any] = {"temperature": 0.8, "seed": SEED} if sampled else {}
    send = partial(generate, ask, room, prompt, plan.tokens, **drawn)
    await generate(ask, room, prompt, 1, label="warm")
    alone = await send(label="alone")
    if scene.damaged:
        beside = await send(label="one token altered", altered=True)
        running: float | None = None
    else:
        async with strangers(
            ask, room, seed=plan.key, count=count, tokens=plan.tokens, mixed=mixed
        ) as seen:
            beside = await send(label=f"beside {count} strangers")
        running = None if seen.running is None else seen.running + 1
    again = await send(label="alone, again")
    return Arms(
        one=Heard(reply=alone),
        other=Heard(reply=beside),
        null=(Heard(reply=alone), Heard(reply=again)),
        doubt=proofs.first_of(proofs.batched(running), proofs.cached_alike(alone, beside)),
        cell={"batch": int(running or 0)},
        seen_at=0 if scene.damaged else None,
        sampled=sampled,
        paths=(name,),
    )


async def reordered_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Send three prompts at once in one order, twice, and in the opposite order."""
    prompts = [
        await prompt_of(
            ask, room, plan, salt=f"order {index} {scene.damaged}", altered=scene.damaged
        )
        for index in range(TOGETHER)
    ]
    for prompt in prompts:
        await generate(ask, room, prompt, 1, label="warm")
    forth = list(range(TOGETHER))
    one = await _in_order(ask, room, plan, prompts, forth)
    again = await _in_order(ask, room, plan, prompts, forth)
    other = await _in_order(ask, room, plan, prompts, forth[::-1], altered=scene.damaged)
    pairs = [(Heard(reply=one[i]), Heard(reply=other[i])) for i in forth]
    return Arms(
        one=pairs[0][0],
        other=pairs[0][1],
        more=() if scene.damaged else tuple(pairs[1:]),
        null=(Heard(reply=one[0]), Heard(reply=again[0])),
        doubt=proofs.first_of(
            *(_overlapped(list(replies.values())) for replies in (one, other)),
            "" if _order(one) == forth and _order(other) == forth[::-1] else "other orders came",
        ),
        seen_at=0 if scene.damaged else None,
        paths=("batched", "reordered"),
    )


async def _in_order(
    ask: Ask,
    room: Room,
    plan: Plan,
    prompts: Sequence[Prompt],
    order: Sequence[int],
    *,
    altered: bool = False,
) -> dict[int, Reply]:
    async def send(place: int, index: int) -> Reply:
        await anyio.sleep(place * STAGGER_S)
        return await generate(
            ask, room, prompts[index], plan.tokens, label=f"place {place + 1}", altered=altered
        )

    replies = await together([partial(send, place, index) for place, index in enumerate(order)])
    return dict(zip(order, replies, strict=True))


def _span(reply: Reply) -> tuple[datetime, datetime]:
    begin = datetime.fromisoformat(reply.started_at)
    return begin, begin + timedelta(seconds=reply.e2e_s)


def _overlapped(replies: Sequence[Reply]) -> str:
    """Doubt that requests were at the server at the same time."""
    spans = [_span(reply) for reply in replies]
    if max(begin for begin, _ in spans) >= min(end for _, end in spans):
        return "the requests did not overlap"
    return ""


def _order(replies: dict[int, Reply]) -> list[int]:
    return sorted(replies, key=lambda index: replies[index].started_at)


_NEEDS = ("metrics",)
BATCHED = Twin(
    name="batched",
    claim="a prompt is answered alike alone and in a batch with strangers",
    ask=batched_arms,
    quick=20,
    sweep=Sweep(
        low=81,
        high=130,
        answers=(12,),
        kinds=("strangers=1", "strangers=3", "strangers=7"),
        one_chunk=True,
    ),
    path="metrics",
    needs=_NEEDS,
    traffic=Traffic.DISRUPTIVE,
    requests=9,
)
REORDERED = Twin(
    name="reordered",
    claim="requests that run at once are answered alike in either order of arrival",
    ask=reordered_arms,
    path="chat",
    quick=18,
    sweep=Sweep(low=81, high=100, answers=(12,), at_boundaries=False),
    traffic=Traffic.LOAD,
    requests=12,
)
MIXED = Twin(
    name="mixed",
    claim="a request is answered alike beside requests with other sampling parameters",
    ask=mixed_arms,
    quick=18,
    sweep=Sweep(
        low=81, high=130, answers=(12,), kinds=("draw=greedy", "draw=seeded"), one_chunk=True
    ),
    path="metrics",
    needs=_NEEDS,
    traffic=Traffic.DISRUPTIVE,
    requests=9,
)
