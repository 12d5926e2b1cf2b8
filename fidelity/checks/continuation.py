"""A task that is interrupted, and a follow-up that only makes sense if it is remembered."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fidelity.checks.answering import answer
from fidelity.checks.conversation import as_turn, measured, paths_of
from fidelity.checks.dealing import dealt
from fidelity.probes.accounting import where_lost
from fidelity.probes.calibration import counter_of
from fidelity.probes.dialogue import READ, assistant, user
from fidelity.probes.haystack import Messages, Size, fit, haystack
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.probes.scoring import Expected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.records import Trial

TOPICS = (
    *("tea house", "chess club", "flower shop", "coffee bar", "music school", "night market"),
    *("bird garden", "wine shop", "moon garden", "boat harbor", "winter garden", "river hotel"),
    *("apple orchard", "star museum", "tiger park", "dragon theater", "piano school"),
    *("garden party", "stone bridge", "silver clock", "old castle", "white horse"),
    *("clock tower", "candle shop", "violin museum", "toy store", "fish market", "rose garden"),
)
FOLLOW_UP = "to a file"
INTERRUPTED_AFTER_TOKENS = (20, 24, 28, 32, 36, 40)
"""Of the page: the server stops there, as it does when a user interrupts."""
FOLLOW_UP_TOKENS = 256


def continuation_probe(
    *,
    seed: str,
    topic: str,
    history_tokens: int,
    interrupted_after: int,
    without_page: bool = False,
) -> Probe:
    """Return a probe: "write a page", interrupted; the part goes back; "to a file".

    Args:
        seed: of the filler before.
        topic: of the page; the right answer names it, in words or as a file name.
        history_tokens: of the prompt that asks for the page; 0 means no history before it.
        interrupted_after: tokens of the page before the interruption.
        without_page: the damage of the positive control: the page's turns are dropped.
    """
    recipe = {
        "builder": "continuation_probe",
        "seed": seed,
        "topic": topic,
        "history_tokens": history_tokens,
        "interrupted_after": interrupted_after,
        "without_page": without_page,
    }
    expected = Expected(right=topic, digits=False, open_ended=True)

    async def script(ask: Ask) -> ProbeResult:
        opening = await _opening(ask, seed, topic, history_tokens)
        turns = []
        history: list[dict[str, Any]] = list(opening)
        if without_page:
            history.pop()
        else:
            page = await ask.chat(opening, label="interrupted", max_tokens=interrupted_after)
            turns.append(page)
            history.append(as_turn(page))
        history.append(user(FOLLOW_UP))
        judged = await answer(
            ask, history, expected, label="follow up", max_tokens=FOLLOW_UP_TOKENS
        )
        lost = ""
        if judged.ok is False:
            lost = await where_lost(ask.client, history, [*turns, judged.reply])
        return ProbeResult(
            ok=judged.ok,
            score=judged.score,
            error=judged.error,
            lost=lost,
            cell=measured(judged.reply),
            paths=paths_of(judged.reply),
        )

    return Probe(
        family="continuation",
        key=f"{history_tokens}/{interrupted_after}/{topic}/{seed}",
        script=script,
        cell={"history_tokens": history_tokens, "interrupted_after_tokens": interrupted_after},
        recipe=recipe,
        expected=topic,
        cost_tokens=history_tokens + 120,
        cost_requests=1 if without_page else 2,
    )


def continuations(
    *,
    seed: int,
    count: int,
    history_tokens: Sequence[int],
    without_page: bool = False,
    stage: str = "",
) -> list[Probe]:
    """Return probes over topics, interruption points and lengths of the history before."""
    draw = random.Random(f"continuation {stage}{seed} {list(history_tokens)}")  # noqa: S311 - prompts
    shares = zip(
        dealt(TOPICS, count, draw),
        dealt(history_tokens, count, draw),
        dealt(INTERRUPTED_AFTER_TOKENS, count, draw),
        strict=True,
    )
    return [
        continuation_probe(
            seed=f"{stage}{seed}-{index}",
            topic=topic,
            history_tokens=tokens,
            interrupted_after=cut,
            without_page=without_page,
        )
        for index, (topic, tokens, cut) in enumerate(shares)
    ]


def fitting(lengths: Sequence[int], limit_tokens: int | None) -> list[int]:
    """Return histories that leave room in the context: at most half of it."""
    most = max(lengths) if limit_tokens is None else limit_tokens // 2
    return [min(tokens, most) for tokens in lengths]


def classes_of(trial: Trial) -> list[str]:
    """Return the class of a continuation: the length of the history before it."""
    return [f"history_tokens={trial.cell['history_tokens']}"]


def fresh_of_class(name: str, count: int, *, seed: int) -> list[Probe]:
    """Return new continuations after a history of that length."""
    tokens = int(name.partition("=")[2])
    return continuations(seed=seed, count=count, history_tokens=[tokens], stage="fresh ")


async def _opening(ask: Ask, seed: str, topic: str, history_tokens: int) -> Messages:
    """Return the messages that ask for the page, with that many tokens in all."""

    def render(size: Size) -> Messages:
        request = user(f"Write a {topic} html page")
        if not history_tokens:
            return [request]
        notes = f"{READ}{haystack(seed, size)}"
        return [user(notes), assistant("I have read it."), request]

    if not history_tokens:
        return render(Size(lines=0))
    return (await fit(counter_of(ask.client).count, render, history_tokens)).messages
