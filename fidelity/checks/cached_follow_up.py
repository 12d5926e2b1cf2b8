"""A follow-up over a cached prefix, at a chosen residue of its length."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fidelity.checks.aiming import aimed
from fidelity.checks.answering import Judged, answer
from fidelity.checks.conversation import TELL_TOKENS, as_turn, measured
from fidelity.checks.register import Register, register
from fidelity.probes.accounting import where_lost
from fidelity.probes.dialogue import user
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.probes.scoring import Expected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.records import Trial

MODULUS = 64
RESENDS = 4
"""Behind several replicas a hit may need more than one request."""


def cached_probe(*, seed: str, residue: int, facts: int, without_facts: bool = False) -> Probe:
    """Return a probe: facts and a question, then another question over the cached prefix.

    Args:
        seed: of the facts.
        residue: of the follow-up's prompt, modulo `MODULUS`.
        facts: told in the first message; they set how much of the prefix is cached.
        without_facts: the damage of the positive control: the first message is left out.
    """
    told = register(seed=seed, facts=facts, lines_between=0)

    async def script(ask: Ask) -> ProbeResult:
        first = [*told.messages, user(told.questions[0])]
        reply = await ask.chat(first, label="first question", max_tokens=TELL_TOKENS)
        history = [] if without_facts else [*first, as_turn(reply)]
        asked = await aimed(ask, history, told.questions[-1], modulus=MODULUS, residue=residue)
        judged = await _over_the_cache(ask, asked, told)
        cell = measured(judged.reply)
        if judged.ok is not None and judged.reply.cached_tokens == 0 and not without_facts:
            return ProbeResult(ok=None, score=judged.score, cell=cell, error=_NEVER_CACHED)
        lost = ""
        if judged.ok is False:
            lost = await where_lost(ask.client, asked, [reply, judged.reply])
        return ProbeResult(
            ok=judged.ok,
            score=judged.score,
            error=judged.error,
            lost=lost,
            cell=cell,
            paths=("cached",) if judged.reply.cached_tokens else (),
        )

    recipe = {
        "builder": "cached_probe",
        "seed": seed,
        "residue": residue,
        "facts": facts,
        "without_facts": without_facts,
    }
    return Probe(
        family="cached follow-up",
        key=f"{residue}/{facts}/{seed}",
        script=script,
        cell={"facts": facts, f"residue_{MODULUS}": residue},
        recipe=recipe,
        expected=told.codes[-1],
        cost_tokens=30 * facts + 120,
        cost_requests=2,
    )


_NEVER_CACHED = (
    f"usage showed no cached token in {RESENDS} requests of one prompt, so the path over the"
    " cache was never taken: is the prefix cache on?"
)


def cached_probes(*, seed: int, count: int, facts: Sequence[int]) -> list[Probe]:
    """Return probes of `count` neighbouring residues, with prefixes of several sizes."""
    draw = random.Random(f"cached {seed}")  # noqa: S311 - prompts, not secrets
    start = draw.randrange(MODULUS)
    return [
        cached_probe(
            seed=f"{seed}-{index}", residue=(start + index) % MODULUS, facts=draw.choice(facts)
        )
        for index in range(count)
    ]


def classes_of(trial: Trial) -> list[str]:
    """Return the classes of a follow-up: residues of its length."""
    axes = ("residue_4", "residue_16", "residue_64")
    return [f"{axis}={trial.cell[axis]}" for axis in axes if axis in trial.cell]


def fresh_of_class(name: str, count: int, *, seed: int, facts: Sequence[int]) -> list[Probe]:
    """Return new follow-ups of one residue."""
    axis, _, value = name.partition("=")
    modulus = int(axis.removeprefix("residue_"))
    draw = random.Random(f"class {seed} {name}")  # noqa: S311 - prompts, not secrets
    return [
        cached_probe(
            seed=f"{seed}-class-{name}-{index}",
            residue=int(value) + modulus * draw.randrange(MODULUS // modulus),
            facts=draw.choice(facts),
        )
        for index in range(count)
    ]


async def _over_the_cache(ask: Ask, messages: Sequence[dict[str, Any]], told: Register) -> Judged:
    """Ask until usage shows a hit; the answer of that request counts."""
    expected = Expected(right=told.codes[-1], distractors=told.codes[:-1])
    judged = await answer(ask, messages, expected, label="follow up")
    for _ in range(RESENDS - 1):
        if judged.reply.cached_tokens != 0:
            break
        judged = await answer(ask, messages, expected, label="follow up again")
    return judged
