"""What a question about a failing chat is asked of, and what it comes to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fidelity.deployment.deployment import Deployment
from fidelity.triage.conversation import Conversation
from fidelity.triage.desk import Desk, Mode, Try

ONLY_STREAMED = "only streamed"
"""Begins the answer to the question of streams where the stream is at fault."""


class Answered(StrEnum):
    """What a question came to."""

    CLEARED = "cleared"
    """It is not that."""
    POINTS = "points there"
    OPEN = "open"
    """It cannot be told."""
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question answered.

    Attributes:
        name: of the question, one word.
        asked: the question.
        says: the answer with its evidence, one sentence.
        answered: what it came to.
        requests: that it took.
        trials: ids behind it.
    """

    says: str
    answered: Answered
    name: str = ""
    asked: str = ""
    requests: int = 0
    trials: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the questions are asked about.

    Attributes:
        desk: that sends.
        deployment: that is asked.
        smallest: the smallest chat that fails.
        original: as it was given.
        facts: expected texts that stand before the question.
        mode: in which it fails.
        repeats: of one arm.
        hops: other ways to the same model, by name.
        stock: the deployment to compare with, by name; empty without one.
    """

    desk: Desk
    deployment: Deployment
    smallest: Conversation
    original: Conversation
    facts: tuple[str, ...]
    mode: Mode
    repeats: int
    hops: Mapping[str, Deployment | str]
    stock: Mapping[str, Deployment | str]


def says(answered: Answered, words: str, tries: Sequence[Try] = ()) -> Answer:
    """Return an answer whose question is filled in by who asks."""
    return Answer(answered=answered, says=words, trials=tuple(one.trial for one in tries))
