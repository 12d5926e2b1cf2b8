"""Prefill against decode, one chunk against many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fidelity.twins import proofs
from fidelity.twins.answers import Heard
from fidelity.twins.asking import generate, score
from fidelity.twins.plans import Sweep
from fidelity.twins.prompts import prompt_of
from fidelity.twins.running import Arms, Twin

if TYPE_CHECKING:
    from fidelity.probes.probe import Ask
    from fidelity.twins.plans import Plan
    from fidelity.twins.room import Room
    from fidelity.twins.scene import Scene

ALTERED_AT = 2
"""Generated token that the control alters: early, and not the first."""


async def decoded_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Generate tokens one by one; then give prompt and tokens at once, twice, and score them."""
    prompt = await prompt_of(ask, room, plan, salt="decoded")
    ids = list(prompt.ids or ())
    decoded = await generate(ask, room, ids, plan.tokens, label="decode")
    made = list(decoded.token_ids or ())
    given = list(made)
    if scene.damaged and len(given) > ALTERED_AT:
        given[ALTERED_AT] = _another(given, ALTERED_AT)
    scored = [
        await score(ask, [*ids, *given], len(ids), label=f"prefill the same tokens{again}")
        for again in ("", ", again")
    ]
    prefill, again = (Heard(reply=reply, given_from=len(ids)) for reply in scored)
    return Arms(
        one=Heard(reply=decoded),
        other=prefill,
        null=(prefill, again),
        doubt=proofs.first_of(
            "" if len(made) > 1 else "fewer than two tokens were generated",
            *(proofs.nothing_generated_came_from_cache(reply, len(ids)) for reply in scored),
        ),
        cell={"answer_tokens": plan.tokens, "end_tokens": len(ids) + len(made)},
        seen_at=ALTERED_AT if scene.damaged else None,
        paths=("decoded", "prefilled"),
    )


def _another(ids: list[int], at: int) -> int:
    """Return a token that stands elsewhere in the text and is not the one at `at`."""
    return next((token for token in reversed(ids) if token != ids[at]), ids[at] + 1)


DECODED = Twin(
    name="decoded",
    claim="tokens have the same logprobs when decoded one by one as when prefilled at once",
    ask=decoded_arms,
    sweep=Sweep(low=81, high=330, answers=(20, 40, 70, 140)),
    needs=("completions", "prompt_logprobs", "token_ids", "logprobs", "cached_tokens"),
    requests=3,
)
