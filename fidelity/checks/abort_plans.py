"""When, how and with what follow-up a request is aborted: the axes of the abort suite."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fidelity.checks.dealing import dealt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.records import Trial

FIRST_GUESS_S = 0.1
_FACT_TOKENS = 26
_LINE_TOKENS = 26


class How(StrEnum):
    """How a request is aborted."""

    CLOSE = "close"
    """The client closes the connection."""
    CALL = "call"
    """The client calls the server's abort endpoint with the request's full id."""


class After(StrEnum):
    """What follows the abort."""

    SAME = "same prompt"
    """The aborted request's own prompt, and other questions over its context."""
    WITH_PARTIAL = "with the partial answer"
    WITHOUT_PARTIAL = "without the partial answer"


@dataclass(frozen=True, slots=True)
class Point:
    """When a request is aborted: after some deltas, or at a share of its time to first token."""

    name: str
    tokens: int | None = None
    prefill_frac: float = 0.0


POINTS = (
    Point("at once", tokens=0),
    Point("prefill .2", prefill_frac=0.2),
    Point("prefill .4", prefill_frac=0.4),
    Point("prefill .6", prefill_frac=0.6),
    Point("prefill .8", prefill_frac=0.8),
    Point("first token", tokens=1),
    Point("few tokens", tokens=4),
    Point("page later", tokens=40),
    Point("late", tokens=100),
)
BY_NAME = {point.name: point for point in POINTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One aborted request and what follows it, as JSON-able axes."""

    seed: str
    point: str
    how: How
    after: After
    facts: int
    lines_between: int = 1

    @property
    def tokens(self) -> int:
        """Return about how long the register's prompt is."""
        return 30 + self.facts * (_FACT_TOKENS + _LINE_TOKENS * self.lines_between)

    @property
    def recipe(self) -> dict[str, Any]:
        """Return the axes as JSON."""
        return {
            "seed": self.seed,
            "point": self.point,
            "how": str(self.how),
            "after": str(self.after),
            "facts": self.facts,
            "lines_between": self.lines_between,
        }


class Pace:
    """How long a cold prompt takes here until its first token: the fastest of the last few.

    A request that waits for others looks slow; an abort that is timed by it would come too late.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._s_per_token: deque[float] = deque(maxlen=8)

    def learn(self, reply: Reply) -> None:
        """Take the time of a reply whose prompt was not cached."""
        if reply.ttft_s and reply.prompt_tokens and not reply.cached_tokens:
            self._s_per_token.append(reply.ttft_s / reply.prompt_tokens)

    def first_token_s(self, prompt_tokens: int) -> float:
        """Return the time that a cold prompt should take."""
        return min(self._s_per_token, default=FIRST_GUESS_S / prompt_tokens) * prompt_tokens


def plans(
    *,
    seed: int,
    count: int,
    facts: Sequence[int],
    hows: Sequence[How],
    lines_between: int = 1,
    limit_tokens: int | None = None,
    point: str = "",
) -> list[Plan]:
    """Return what to abort: points, ways, follow-ups and sizes, each dealt out evenly.

    Args:
        seed: of the run.
        count: of plans.
        facts: sizes of the register.
        hows: ways of aborting that the deployment has.
        lines_between: lines of filler before each fact.
        limit_tokens: of the deployment's context; registers take at most half of it.
        point: only this one; all of them otherwise.
    """
    if limit_tokens is not None:
        per_fact = _FACT_TOKENS + _LINE_TOKENS * lines_between
        facts = [max(4, min(size, limit_tokens // 2 // per_fact)) for size in facts]
    draw = random.Random(f"aborts {seed} {point}")  # noqa: S311 - prompts, not secrets
    points = [each.name for each in POINTS if not point or each.name == point]
    shares = zip(
        dealt(points, count, draw),
        dealt(hows, count, draw),
        dealt(list(After), count, draw),
        dealt(facts, count, draw),
        strict=True,
    )
    return [
        Plan(
            seed=f"{seed}-{point}-{index}",
            point=name,
            how=how,
            after=after,
            facts=size,
            lines_between=lines_between,
        )
        for index, (name, how, after, size) in enumerate(shares)
    ]


def ways(has_call: bool) -> list[How]:
    """Return the ways of aborting that a deployment has."""
    return [How.CLOSE, How.CALL] if has_call else [How.CLOSE]


def classes_of(trial: Trial) -> list[str]:
    """Return the class of an aborted request: the point at which it was aborted."""
    return [f"point={trial.cell['point']}"] if trial.cell.get("point") in BY_NAME else []
