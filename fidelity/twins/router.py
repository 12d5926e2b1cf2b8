"""A router against one of its workers, asked directly."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fidelity.errors import EndpointError
from fidelity.probes.probe import Ask
from fidelity.twins import proofs
from fidelity.twins.answers import Heard
from fidelity.twins.asking import generate
from fidelity.twins.plans import Sweep
from fidelity.twins.prompts import prompt_of
from fidelity.twins.twin import Arms, Twin

if TYPE_CHECKING:
    from fidelity.twins.plans import Plan
    from fidelity.twins.room import Room
    from fidelity.twins.scene import Scene


async def routed_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Send one prompt through the router, to a worker by its own address, and through it again.

    A worker that answers only what its router sends it is no fault: then the path is not taken.
    """
    prompt = await prompt_of(ask, room, plan, salt=f"routed {scene.damaged}", altered=scene.damaged)
    send = partial(generate, room=room, prompt=prompt, tokens=plan.tokens)
    await send(ask, label="router, warm")
    routed = await send(ask, label="router")
    direct, doubt, name = routed, "the deployment has no worker with an address of its own", ""
    for name, client in room.workers.items():
        beside = Ask(client)
        try:
            await send(beside, label=f"{name}, warm")
            direct = await send(beside, label=name, altered=scene.damaged)
            doubt = ""
            break
        except EndpointError as error:
            doubt = f"no worker answers by itself ({name}: {error})"
        finally:
            ask.exchanges += beside.exchanges
    again = await send(ask, label="router, again")
    return Arms(
        one=Heard(reply=routed),
        other=Heard(reply=direct),
        null=(Heard(reply=routed), Heard(reply=again)),
        doubt=proofs.first_of(doubt, proofs.cached_alike(routed, again)),
        cell={"worker": name},
        seen_at=0 if scene.damaged else None,
        paths=("router", "worker"),
    )


ROUTED = Twin(
    name="routed",
    claim="a prompt is answered alike through the router and by a worker itself",
    ask=routed_arms,
    path="chat",
    sweep=Sweep(low=81, high=330, answers=(8,)),
    requests=5,
)
