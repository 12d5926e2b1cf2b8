"""One question with a known answer: sent, scored, and asked again with room when it was cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fidelity.probes.scoring import Answer, Expected, score
from fidelity.words import Score

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.probes.probe import Ask

ANSWER_TOKENS = 48
"""Room for a short answer in a sentence; digits cost a token each in some vocabularies."""
REASONING_TOKENS = 4_096
"""Room for one that reasons first; only a server that was cut inside its reasoning is given it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A scored answer. `ok` is None, with a sentence, where it says nothing about the claim."""

    reply: Reply
    score: Score
    ok: bool | None
    error: str = ""


async def answer(
    ask: Ask,
    messages: Sequence[Mapping[str, Any]],
    expected: Expected,
    *,
    label: str = "ask",
    max_tokens: int = ANSWER_TOKENS,
    **options: Any,
) -> Judged:
    """Ask, and score the answer; one that was cut inside its reasoning is asked again with room.

    A cut answer is not a wrong one: the same prompt goes out once more, with `REASONING_TOKENS`.

    Raises:
        EndpointError: the server did not answer.
    """
    reply = await ask.chat(messages, label=label, max_tokens=max_tokens, **options)
    scored = score(Answer.of(reply), expected)
    if scored is Score.CUT and max_tokens < REASONING_TOKENS:
        reply = await ask.chat(
            messages, label=f"{label}, with room to reason", max_tokens=REASONING_TOKENS, **options
        )
        scored = score(Answer.of(reply), expected)
    if scored is Score.CUT:
        return Judged(reply=reply, score=scored, ok=None, error=_cut_sentence(reply))
    return Judged(reply=reply, score=scored, ok=scored is Score.RIGHT)


def _cut_sentence(reply: Reply) -> str:
    spent = f"{reply.completion_tokens} tokens" if reply.completion_tokens else "its token budget"
    return (
        f"the answer to {reply.request_id} spent {spent} inside its reasoning and never began:"
        " ask for less reasoning in [request] of fidelity.toml"
    )
