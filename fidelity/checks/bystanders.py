"""Requests that run while others are aborted around them."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from fidelity.checks.abort import abort_request
from fidelity.checks.abort_plans import POINTS, How
from fidelity.checks.answering import Judged, answer
from fidelity.checks.register import Register, register
from fidelity.checks.slips import expected_of, without_slips
from fidelity.checks.together import together
from fidelity.probes.dialogue import user
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.probes.scoring import Expected
from fidelity.words import Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.records import Trial

COUNT_TO = 40
COUNT_TOKENS = 240
FACTS = 6
VICTIM_FACTS = (4, 8, 12)
TEMPERATURES = (None, 0.7, 1.3)
"""Of the victims: a batch in which sampling parameters differ."""
STORM_FIRST_TOKEN_S = 0.15


def bystander_probe(
    *, seed: str, victims: int, hows: Sequence[How], without_facts: bool = False
) -> Probe:
    """Return a probe: a long answer and a few facts, while other requests are aborted.

    The facts are asked for during the storm and once more behind it: pages that were given away
    too early are overwritten by then.

    Args:
        seed: of everything.
        victims: requests that are aborted; 0 is the calm of the other arm.
        hows: ways of aborting that the deployment has.
        without_facts: the damage of the positive control: the facts are not sent.
    """
    told, undisturbed = [
        register(seed=f"{seed} bystander", facts=FACTS, lines_between=1, salt=salt)
        for salt in (f"{victims} victims", "undisturbed")
    ]

    async def script(ask: Ask) -> ProbeResult:
        base: list[dict[str, Any]] = [] if without_facts else list(told.messages)
        storm = [partial(_victim, ask, f"{seed}-{index}", hows) for index in range(victims)]
        facts: dict[int, Judged] = {}
        counted, *_ = await together(
            [partial(_count, ask), partial(_facts, ask, base, told, facts, (5, 2)), *storm]
        )
        await _facts(ask, base, told, facts, (5, 4, 3, 2, 1, 0))
        return _result([*counted, *await without_slips(ask, facts, undisturbed)], victims)

    return Probe(
        family="bystander",
        key=f"{victims}/{seed}",
        script=script,
        cell={"victims": victims},
        recipe={
            "builder": "bystander_probe",
            "seed": seed,
            "victims": victims,
            "hows": [str(how) for how in hows],
            "without_facts": without_facts,
        },
        expected=f"1 to {COUNT_TO}; {', '.join(told.codes)}",
        cost_tokens=350 + 8 * 70 + 250 * victims,
        cost_requests=9 + victims,
        traffic=Traffic.DISRUPTIVE if victims else Traffic.PASSIVE,
    )


def _result(judged: Sequence[Judged], victims: int) -> ProbeResult:
    wrong = [each for each in judged if each.ok is False]
    unknown = [each for each in judged if each.ok is None]
    shown = (wrong or unknown or judged)[0]
    return ProbeResult(
        ok=False if wrong else None if unknown else True,
        score=shown.score,
        value=1 - (len(wrong) + len(unknown)) / len(judged),
        error=unknown[0].error if unknown and not wrong else "",
        cell={"victims": victims},
        paths=("batched", "aborted") if victims else (),
    )


async def _count(ask: Ask) -> list[Judged]:
    expected = Expected(right=str(COUNT_TO), count=True)
    return [
        await answer(
            ask,
            [user(f"Count from 1 to {COUNT_TO}.")],
            expected,
            label="bystander: count",
            max_tokens=COUNT_TOKENS,
        )
    ]


async def _facts(
    ask: Ask,
    base: Sequence[dict[str, Any]],
    told: Register,
    found: dict[int, Judged],
    indices: Sequence[int],
) -> list[Judged]:
    """Ask for facts, and note them in `found`: a fact that was wrong once stays wrong."""
    for index in indices:
        judged = await answer(
            ask,
            [*base, user(told.questions[index])],
            expected_of(told, index),
            label=f"bystander: fact {index + 1}",
        )
        if index not in found or found[index].ok:
            found[index] = judged
    return []


async def _victim(ask: Ask, seed: str, hows: Sequence[How]) -> list[Judged]:
    """Send a request and abort it; a victim is not judged."""
    draw = random.Random(f"victim {seed}")  # noqa: S311 - prompts, not secrets
    told = register(seed=f"{seed} victim", facts=draw.choice(VICTIM_FACTS), lines_between=1)
    messages = [*told.messages, user(f"Count from 1 to {COUNT_TO}.")]
    await abort_request(
        ask,
        messages,
        draw.choice(POINTS),
        draw.choice(list(hows)),
        wait_s=STORM_FIRST_TOKEN_S,
        label="victim",
        temperature=draw.choice(TEMPERATURES),
    )
    return []


async def storm(ask: Ask, *, seed: str, victims: int, hows: Sequence[How]) -> None:
    """Abort that many requests at once."""
    await together([partial(_victim, ask, f"{seed}-{index}", hows) for index in range(victims)])


def classes_of(trial: Trial) -> list[str]:
    """Return the class of a bystander: how many were aborted around it."""
    return [f"victims={trial.cell['victims']}"]
