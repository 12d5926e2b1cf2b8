"""Prefill against decode, one chunk against many, a conversation turn by turn against at once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from fidelity.probes.dialogue import user
from fidelity.twins import proofs
from fidelity.twins.answers import Heard
from fidelity.twins.asking import generate, score
from fidelity.twins.plans import Sweep
from fidelity.twins.prompts import prompt_of, rendered_ids
from fidelity.twins.twin import Arms, Twin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.probes.probe import Ask
    from fidelity.twins.plans import Plan
    from fidelity.twins.prompts import Prompt
    from fidelity.twins.room import Room
    from fidelity.twins.scene import Scene

ALTERED_AT = 2
"""Generated token that the control alters: early, and not the first."""


async def decoded_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Generate tokens one by one; then give prompt and tokens at once, twice, and score them."""
    prompt = await prompt_of(ask, room, plan, salt="decoded", altered=scene.damaged)
    ids = list(prompt.ids or ())
    decoded = await generate(ask, room, ids, plan.tokens, label="decode")
    made = list(decoded.token_ids or ())
    given = list(made)
    if scene.damaged and len(given) > ALTERED_AT:
        given[ALTERED_AT] = _another(given, ALTERED_AT)
    scored = [
        await score(ask, room, [*ids, *given], len(ids), label=f"prefill the same tokens{again}")
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
        cell={"end_tokens": len(ids) + len(made)},
        seen_at=ALTERED_AT if scene.damaged else None,
        paths=("decoded", "prefilled"),
    )


def _another(ids: list[int], at: int) -> int:
    """Return a token that stands elsewhere in the text and is not the one at `at`."""
    return next((token for token in reversed(ids) if token != ids[at]), ids[at] + 1)


async def chunked_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Compute a prompt in pieces of one chunk each, over the cache; then at once, in many chunks.

    The pieces come first: a request past the cache may still leave its pages there.
    """
    if room.chunk is None:
        return await _of_unknown_chunks(ask, room, plan)
    prompt = await prompt_of(
        ask, room, plan, salt=f"chunked {scene.damaged}", altered=scene.damaged
    )
    ids = list(prompt.ids or ())
    pieces: list[Reply] = []
    if not scene.damaged:
        pieces = [
            await generate(ask, room, ids[:end], 1, label="a piece")
            for end in _ends(len(ids), room, plan.key)
        ]
    once = await generate(
        ask, room, prompt, plan.tokens, label="the last piece", altered=scene.damaged
    )
    many, again = [
        await generate(ask, room, ids, plan.tokens, label=label, bypass=True)
        for label in ("in many chunks", "in many chunks, again")
    ]
    counts = [proofs.chunks(reply, room) for reply in (*pieces, once)]
    at_once = proofs.chunks(many, room)
    return Arms(
        one=Heard(reply=many),
        other=Heard(reply=once),
        null=(Heard(reply=many), Heard(reply=again)),
        doubt=proofs.first_of(
            proofs.cold((pieces or [many])[0], prompt.shared),
            proofs.cold(many, prompt.shared),
            "" if (at_once or 0) >= 2 else f"{at_once} chunks where many were meant",
            "" if set(counts) == {1} else f"pieces of {counts} chunks where one was meant",
        ),
        cell={"chunks": at_once or 0, "pieces": len(counts)},
        seen_at=0 if scene.damaged else None,
        paths=("chunked",),
    )


async def _of_unknown_chunks(ask: Ask, room: Room, plan: Plan) -> Arms:
    """Return arms that prove nothing: without its size nobody knows where a chunk ends."""
    reply = Heard(reply=await generate(ask, room, await _any(ask, room, plan), 2, label="any"))
    doubt = "the server does not tell how long a chunk of its prefill is"
    return Arms(one=reply, other=reply, null=(reply, reply), doubt=doubt)


async def _any(ask: Ask, room: Room, plan: Plan) -> Prompt:
    return await prompt_of(ask, room, plan, salt="any")


def _ends(length: int, room: Room, key: str) -> list[int]:
    """Return where the pieces of a prompt end: each computes one chunk at most."""
    draw = random.Random(f"pieces {key}")  # noqa: S311 - lengths, not secrets
    chunk, page = room.chunk or length, room.page or 1
    ends: list[int] = []
    cached = 0
    while length - cached > chunk:
        # what is cached of a piece are its full pages, so that each piece must add one at least
        end = cached + draw.randint(min(page, chunk), chunk)
        ends.append(end)
        cached = end // page * page
    return ends


async def turned_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Hold a conversation of three turns; then give the tokens of each turn at once, uncached."""
    prompt = await prompt_of(ask, room, plan, salt=f"turned {scene.damaged}", altered=scene.damaged)
    first = list((prompt.altered_ids if scene.damaged else prompt.ids) or ())
    tail = await _tail(ask, room, prompt, first)
    made = await generate(
        ask, room, first, _turn_tokens(len(first), room, plan), label="first turn"
    )
    told = [*(prompt.ids or ()), *(made.token_ids or ()), *tail]
    second = await generate(
        ask, room, [*first, *told[len(first) :]], plan.tokens, label="second turn"
    )
    longer = [*told, *(second.token_ids or ()), *tail]
    third = await generate(
        ask, room, [*first, *longer[len(first) :]], plan.tokens, label="third turn"
    )
    cold, again = [
        await generate(ask, room, told, plan.tokens, label=label, bypass=True)
        for label in ("second turn at once", "second turn at once, again")
    ]
    last = await generate(ask, room, longer, plan.tokens, label="third turn at once", bypass=True)
    return Arms(
        one=Heard(reply=cold),
        other=Heard(reply=second),
        more=() if scene.damaged else ((Heard(reply=last), Heard(reply=third)),),
        null=(Heard(reply=cold), Heard(reply=again)),
        doubt=proofs.first_of(
            *(proofs.cold(reply, prompt.shared) for reply in (cold, again, last)),
            proofs.cached(second, len(first)),
        ),
        cell={"first_turn_tokens": len(told) - len(tail)},
        seen_at=0 if scene.damaged else None,
        paths=("turn by turn",),
    )


async def _tail(ask: Ask, room: Room, prompt: Prompt, first: Sequence[int]) -> list[int]:
    """Return the tokens of one more user turn: a prompt of its own without its first token."""
    question = prompt.messages[-1]["content"].rpartition("\n")[2]
    ids = await rendered_ids(ask, room, [user(question)])
    return list(ids[1:] if ids[:1] == tuple(first[:1]) else ids)


def _turn_tokens(length: int, room: Room, plan: Plan) -> int:
    """Return how long the first answer is: so that a page of it is full, ending as planned.

    The last token of an answer is drawn and not yet computed, so the page that it would fill is
    not full.
    """
    page = room.page or 16
    ends = {"before": page - 1, "at": 0, "behind": 1}
    end = ends.get(plan.kind.partition("=")[2], page // 2)
    tokens = 2
    while (length + tokens) % page != end or (length + tokens - 1) // page * page <= length:
        tokens += 1
    return tokens


def _longer_than_a_chunk(room: Room) -> Sweep:
    chunk = room.chunk or 256
    return Sweep(low=chunk + 1, high=chunk * 5 // 2, answers=(8,))


DECODED = Twin(
    name="decoded",
    claim="tokens have the same logprobs when decoded one by one as when prefilled at once",
    ask=decoded_arms,
    path="prompt_logprobs",
    sweep=Sweep(low=81, high=330, answers=(16, 33, 66, 130)),
    needs=("completions", "prompt_logprobs", "token_ids", "logprobs", "cached_tokens"),
    requests=3,
)
CHUNKED = Twin(
    name="chunked",
    claim="a prompt is answered alike in one chunk and in many",
    ask=chunked_arms,
    sweep=_longer_than_a_chunk,
    path="server_info",
    needs=("completions", "prompt_logprobs", "token_ids", "cached_tokens"),
    requests=5,
)
TURNED = Twin(
    name="turned",
    claim="a conversation is answered alike turn by turn and given at once",
    ask=turned_arms,
    sweep=Sweep(
        low=81,
        high=140,
        answers=(16,),
        kinds=("turn_end=before", "turn_end=at", "turn_end=behind", "turn_end=inside"),
        at_boundaries=False,
    ),
    path="prefix_cache",
    needs=("completions", "prompt_logprobs", "token_ids", "cached_tokens"),
    requests=6,
)
