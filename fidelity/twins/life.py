"""The life of a server: one of its first requests against the same one, many requests later."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from fidelity.checks.together import together
from fidelity.errors import TrafficRefused
from fidelity.probes.dialogue import user
from fidelity.probes.filler import filler_of
from fidelity.twins import proofs
from fidelity.twins.answers import Heard
from fidelity.twins.asking import generate
from fidelity.twins.plans import Sweep
from fidelity.twins.prompts import prompt_of
from fidelity.twins.twin import Arms, Twin

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply
    from fidelity.probes.probe import Ask
    from fidelity.twins.plans import Plan
    from fidelity.twins.prompts import Prompt
    from fidelity.twins.room import Room
    from fidelity.twins.scene import Scene

REQUESTS_BETWEEN = 200
AT_ONCE = 4


async def aged_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Ask early, twice; let a row of other requests be served; ask again; all past the cache.

    Where it cannot be passed by, all of them read it.
    """

    async def live() -> None:
        await other_requests(ask, seed=f"{plan.seed}", count=REQUESTS_BETWEEN)

    async with scene.member():
        async with scene.alone():
            prompt = await prompt_of(
                ask, room, plan, salt=f"aged {scene.damaged}", altered=scene.damaged
            )
            if not room.can_bypass:  # then all of them read the cache alike
                await _ask(ask, room, prompt, plan, label="warm")
            early, again = [
                await _ask(ask, room, prompt, plan, label=label)
                for label in ("early", "early, again")
            ]
        if not scene.damaged and not await scene.meet(live):
            raise TrafficRefused("the requests between were not served")
        async with scene.alone():
            late = await _ask(ask, room, prompt, plan, label="late", altered=scene.damaged)
    return Arms(
        one=Heard(reply=early),
        other=Heard(reply=late),
        null=(Heard(reply=early), Heard(reply=again)),
        doubt=proofs.first_of(
            "" if early.epoch == late.epoch else "the server restarted in between",
            proofs.cached_alike(early, late),
        ),
        cell={"requests_between": REQUESTS_BETWEEN},
        seen_at=0 if scene.damaged else None,
        paths=("aged",),
    )


async def other_requests(ask: Ask, *, seed: str, count: int) -> None:
    """Have a row of short requests served, all different."""

    async def send(first: int) -> None:
        for index in range(first, count, AT_ONCE):
            draw = random.Random(f"life {seed} {index}")  # noqa: S311 - prompts, not secrets
            text = filler_of(f"life {seed} {index}").sentences(draw.randint(1, 4))
            await ask.client.chat(
                [user(" ".join(text))], max_tokens=draw.randint(1, 3), stream=False
            )

    await together([partial(send, first) for first in range(AT_ONCE)])


async def _ask(
    ask: Ask, room: Room, prompt: Prompt, plan: Plan, *, label: str, altered: bool = False
) -> Reply:
    return await generate(
        ask, room, prompt, plan.tokens, label=label, altered=altered, bypass=room.can_bypass
    )


AGED = Twin(
    name="aged",
    claim=f"a request is answered alike early in a server's life and {REQUESTS_BETWEEN} later",
    ask=aged_arms,
    path="chat",
    sweep=Sweep(low=81, high=200, answers=(8,), one_chunk=True, at_boundaries=False),
    gathers=True,
    requests=4,
    event_tokens=lambda room: 60 * REQUESTS_BETWEEN,  # noqa: ARG005 - of any server
)
