"""How an answer is asked for: streamed or whole, as chat or as a rendered completion."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fidelity.checks.plumbing_questions import ECHOED
from fidelity.probes.dialogue import assistant, user
from fidelity.twins import proofs
from fidelity.twins.answers import Heard
from fidelity.twins.asking import counted, generate, sampling
from fidelity.twins.plans import Sweep
from fidelity.twins.prompts import prompt_of, rendered_ids
from fidelity.twins.twin import Arms, Twin

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply
    from fidelity.probes.probe import Ask
    from fidelity.twins.plans import Plan
    from fidelity.twins.room import Room
    from fidelity.twins.scene import Scene

ECHO_TOKENS = 48


async def streamed_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Ask one chat whole, streamed, and whole again; all three over a warm cache."""
    if plan.kind == "asks_for=other scripts" and not scene.damaged:
        text = ECHOED[plan.length % len(ECHOED)]
        messages = [user(f"Repeat exactly: {text}")]
        altered, tokens, natural = messages, ECHO_TOKENS, True
    else:
        prompt = await prompt_of(
            ask, room, plan, salt=f"streamed {scene.damaged}", altered=scene.damaged
        )
        messages, altered, tokens = list(prompt.messages), list(prompt.altered), plan.tokens
        natural = False
    send = partial(_chat, ask, room, tokens=tokens, natural_end=natural)
    await send(messages, label="warm", stream=False)
    whole = await send(messages, label="whole", stream=False)
    stream = await send(altered if scene.damaged else messages, label="streamed", stream=True)
    again = await send(messages, label="whole, again", stream=False)
    return Arms(
        one=Heard(reply=whole),
        other=Heard(reply=stream),
        null=(Heard(reply=whole), Heard(reply=again)),
        doubt="" if stream.chunks > 1 else f"the stream came in {stream.chunks} pieces",
        cell={"pieces": stream.chunks},
        seen_at=0 if scene.damaged else None,
        texts=True,
        paths=("streamed",),
    )


async def rendered_arms(ask: Ask, room: Room, plan: Plan, scene: Scene) -> Arms:
    """Ask one conversation as chat, twice, and as a completion of its rendered tokens."""
    prompt = await prompt_of(
        ask, room, plan, salt=f"rendered {scene.damaged}", altered=scene.damaged
    )
    messages, altered = list(prompt.messages), list(prompt.altered)
    if plan.kind == "turns=2" and not scene.damaged:
        text = messages[0]["content"]
        story, _, question = text.rpartition("\n")
        messages = [user(story), assistant("I have read it."), user(question)]
    ids = await rendered_ids(ask, room, altered if scene.damaged else messages)
    send = partial(_chat, ask, room, messages, tokens=plan.tokens, stream=False)
    await send(label="warm")
    chat = await send(label="chat")
    completion = await generate(ask, room, list(ids), plan.tokens, label="completion")
    again = await send(label="chat, again")
    return Arms(
        one=Heard(reply=chat),
        other=Heard(reply=completion),
        null=(Heard(reply=chat), Heard(reply=again)),
        doubt="" if scene.damaged else proofs.cached_alike(chat, completion),
        cell={"chat_tokens": chat.prompt_tokens or 0, "rendered_tokens": len(ids)},
        seen_at=0 if scene.damaged else None,
        paths=("chat", "rendered"),
    )


async def _chat(
    ask: Ask,
    room: Room,
    messages: list[dict[str, Any]],
    *,
    tokens: int,
    label: str,
    stream: bool,
    natural_end: bool = False,
) -> Reply:
    asked = {
        **sampling(room),
        "max_tokens": tokens,
        "stream": stream,
        "thinking": room.thinking,
    }
    if natural_end:
        asked.pop("extra", None)
    return counted(await ask.chat(messages, label=label, **asked), room)


STREAMED = Twin(
    name="streamed",
    claim="a streamed answer has the tokens, logprobs and text of the same answer in one piece",
    ask=streamed_arms,
    path="stream",
    sweep=Sweep(
        low=81,
        high=130,
        answers=(12, 48),
        kinds=("asks_for=a fact", "asks_for=other scripts"),
        at_boundaries=False,
    ),
    needs=("stream",),
    requests=4,
)
RENDERED = Twin(
    name="rendered",
    claim="a chat has the tokens and logprobs of a completion of its rendered prompt",
    ask=rendered_arms,
    path="tokenize",
    sweep=Sweep(low=81, high=200, answers=(8,), kinds=("turns=1", "turns=2"), one_chunk=True),
    needs=("completions", "tokenize"),
    requests=4,
)
