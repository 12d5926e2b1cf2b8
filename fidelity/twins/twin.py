"""What a twin is: two ways of asking one prompt, and which prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fidelity.words import Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from fidelity.probes.probe import Ask
    from fidelity.twins.answers import Heard
    from fidelity.twins.plans import Plan, Sweep
    from fidelity.twins.room import Room
    from fidelity.twins.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """What both arms of one prompt were answered, and two identical requests beside them.

    Attributes:
        one: the arm that is taken for right.
        other: the same by the path in question.
        null: two identical requests of this server, sent between and around the arms.
        more: further pairs of the same two paths; the pair that parts most speaks.
        doubt: why the path is not proven; "" when it is.
        cell: axes as they were measured.
        seen_at: where a control's altered token must show: 0 anywhere in the answer, otherwise at
            that very token; None: not a control.
        texts: also hold the texts and finish reasons of the arms against each other.
        sampled: tokens were drawn at random from a seed: other tokens from unequal probabilities
            are what rounding does, from equal ones they are not.
        paths: proven by this trial.
    """

    one: Heard
    other: Heard
    null: tuple[Heard, Heard]
    more: tuple[tuple[Heard, Heard], ...] = ()
    doubt: str = ""
    cell: Mapping[str, str | int | float] = field(default_factory=dict)
    seen_at: int | None = None
    texts: bool = False
    sampled: bool = False
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """One pair of paths.

    Attributes:
        name: one word, the path in question: "cached", "batched", ...
        claim: the sentence.
        ask: sends both arms and the null arm of one prompt.
        sweep: the prompts, or what makes them of a server's sizes.
        quick: prompts at that budget; likewise the others.
        path: the capability that a deployment promises when it promises this path.
        needs: capabilities without which there is no such claim here.
        traffic: the highest class of any request.
        gathers: its prompts meet at an event; otherwise one prompt is asked at a time, so that
            "alone" is true and a fault of batches shows in the twins of batches only.
        requests: that one prompt takes, for a plan.
        event_tokens: that the event costs once, by what is known of the server.
    """

    name: str
    claim: str
    ask: Callable[[Ask, Room, Plan, Scene], Awaitable[Arms]]
    sweep: Sweep | Callable[[Room], Sweep]
    quick: int = 16
    standard: int = 64
    deep: int = 256
    controls: int = 4
    path: str = ""
    needs: tuple[str, ...] = ()
    traffic: Traffic = Traffic.PASSIVE
    gathers: bool = False
    requests: int = 4
    event_tokens: Callable[[Room], int] = lambda room: 0  # noqa: ARG005 - most have no event
