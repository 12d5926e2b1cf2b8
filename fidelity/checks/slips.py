"""A slip of the model is not a fault of the server: one wrong fact is asked again beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fidelity.checks.answering import Judged, answer
from fidelity.probes.dialogue import user
from fidelity.probes.scoring import Expected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fidelity.checks.register import Register
    from fidelity.probes.probe import Ask

MOST_SLIPS = 1
"""Facts a trial that may be forgiven; a server that reads nothing is wrong in both places."""


def expected_of(told: Register, index: int) -> Expected:
    """Return what is right for one fact of a register; the others' codes are distractors."""
    right = told.codes[index]
    return Expected(right=right, distractors=tuple(code for code in told.codes if code != right))


async def without_slips(
    ask: Ask, judged: Mapping[int, Judged], undisturbed: Register
) -> list[Judged]:
    """Return the judged answers without a slip that the model makes undisturbed too.

    Args:
        ask: to ask once more, when one answer is wrong.
        judged: answers by index of the fact.
        undisturbed: the same facts in a context that shares no prefix with anything before.
    """
    wrong = [index for index, each in judged.items() if each.ok is False]
    if not 0 < len(wrong) <= MOST_SLIPS or len(judged) <= MOST_SLIPS:
        return list(judged.values())
    index = wrong[0]
    messages = [*undisturbed.messages, user(undisturbed.questions[index])]
    beside = await answer(
        ask, messages, expected_of(undisturbed, index), label=f"fact {index + 1}, undisturbed"
    )
    forgiven = {index} if beside.ok is False else set()
    return [each for place, each in judged.items() if place not in forgiven]
