"""Canaries: a number that one conversation was told must never show in another."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from fidelity.checks.aiming import aimed
from fidelity.checks.answering import answer
from fidelity.checks.conversation import TELL_TOKENS, as_turn, measured, paths_of
from fidelity.probes.dialogue import READ, assistant, user
from fidelity.probes.filler import filler_of, numbered
from fidelity.probes.needles import ask as ask_for_code
from fidelity.probes.needles import draw_code, draw_codes, draw_name, tell
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.probes.scoring import Answer, Expected, names_code
from fidelity.words import Score, Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.records import Trial

SHARED_LINES = 12
"""Of notes that all conversations begin with: their first pages are one cached prefix."""
LATER_LINES = 4
"""Of notes that all read after their canary: but for the canary their tokens are equal."""
QUESTION = "What is my door code?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Conversations that differ in nothing but their canary.

    The shared beginning holds a fact, which each of them asks for first: many at once, that is a
    cold burst on one prefix.

    Attributes:
        seed: of notes and canaries.
        canaries: one a conversation, all different.
        strangers: canaries that other crowds of the run were told.
    """

    seed: str
    canaries: tuple[str, ...]
    strangers: tuple[str, ...] = ()

    @classmethod
    def of(cls, seed: str, size: int, beside: Sequence[tuple[str, int]] = ()) -> Crowd:
        """Return the crowd of a seed; `beside` names the run's other crowds, as (seed, size)."""
        own = _canaries(seed, size)
        others = [code for other, count in beside for code in _canaries(other, count)]
        strangers = tuple(code for code in others if code not in own)
        return cls(seed=seed, canaries=own, strangers=strangers)

    def opening(self) -> list[dict[str, Any]]:
        """Return the turns that all of them begin with."""
        lines = list(filler_of(f"shared {self.seed}").sentences(SHARED_LINES))
        name, code = self.shared_fact()
        lines.insert(SHARED_LINES // 2, tell(name, code))
        return [user(f"{READ}{numbered(lines)}"), assistant("I have read it.")]

    def shared_fact(self) -> tuple[str, str]:
        """Return name and code of the fact in the shared beginning."""
        draw = random.Random(f"shared fact {self.seed}")  # noqa: S311 - prompts, not secrets
        return draw_name(draw), draw_code(draw)

    def foreign(self, replies: Sequence[Reply], member: int) -> list[str]:
        """Return the canaries of others that show anywhere in these replies."""
        texts = [f"{a.said}\n{a.reasoning}" for a in map(Answer.of, replies)]
        others = [code for index, code in enumerate(self.canaries) if index != member]
        return [
            code
            for code in (*others, *self.strangers)
            if any(names_code(text, code) for text in texts)
        ]


def _canaries(seed: str, size: int) -> tuple[str, ...]:
    draw = random.Random(f"canaries {seed}")  # noqa: S311 - prompts, not secrets
    return tuple(draw_codes(draw, size))


def canary_probe(
    *,
    seed: str,
    size: int,
    member: int,
    swapped: bool = False,
    beside: Sequence[tuple[str, int]] = (),
    traffic: Traffic = Traffic.PASSIVE,
    aim: tuple[int, int] | None = None,
    must_recall: bool = False,
) -> Probe:
    """Return a probe: one conversation of a crowd; ok means that no foreign canary showed.

    Four requests: the shared fact is asked for; the canary is told, asked for after other
    business, and asked for in a fork of the conversation in which it was never told. `score` says
    whether shared fact and own canary came back.

    Args:
        seed: of the crowd.
        size: of the crowd.
        member: which conversation.
        swapped: the damage of the positive control: we send the next member's conversation.
        beside: the run's other crowds, as (seed, size).
        traffic: class of the requests; load goes beyond the passive limit of requests in flight.
        aim: (modulus, residue) that the prompts of both questions are brought to.
        must_recall: ok means in addition that shared fact and own canary came back.
    """
    crowd = Crowd.of(seed, size, beside)
    sent = (member + 1) % size if swapped else member

    async def script(ask: Ask) -> ProbeResult:
        history = [*crowd.opening(), user(f"My door code is {crowd.canaries[sent]}.")]
        name, code = crowd.shared_fact()
        shared = await answer(
            ask,
            await question(ask, crowd.opening(), ask_for_code(name)),
            Expected(right=code),
            label="ask for the shared fact",
            traffic=traffic,
        )
        told = await ask.chat(history, label="tell", max_tokens=TELL_TOKENS, traffic=traffic)
        later = numbered(filler_of(f"later {seed}").sentences(LATER_LINES))
        history += [as_turn(told), user(f"{READ}{later}"), assistant("I have read it.")]
        expected = Expected(right=crowd.canaries[member])
        asked = await answer(
            ask, await question(ask, history, QUESTION), expected, label="ask", traffic=traffic
        )
        fork = await answer(
            ask,
            [*crowd.opening(), user(QUESTION)],
            expected,
            label="ask, never told",
            traffic=traffic,
        )
        foreign = crowd.foreign([shared.reply, told, asked.reply, fork.reply], member)
        worse = asked if shared.ok else shared
        unknown = worse.ok is None and not foreign
        recalled = worse.ok is True or not must_recall
        return ProbeResult(
            ok=None if unknown else recalled and not foreign,
            score=worse.score,
            value=float(len(foreign)),
            error=worse.error if unknown else "",
            cell=measured(worse.reply),
            paths=paths_of(asked.reply),
        )

    async def question(
        ask: Ask, history: Sequence[dict[str, Any]], text: str
    ) -> list[dict[str, Any]]:
        if aim is None:
            return [*history, user(text)]
        return await aimed(ask, history, text, modulus=aim[0], residue=aim[1])

    return Probe(
        family="canary",
        key=f"{member}/{seed}",
        script=script,
        cell={"conversations": size},
        recipe={
            "builder": "canary_probe",
            "seed": seed,
            "size": size,
            "member": member,
            "swapped": swapped,
            "beside": [list(other) for other in beside],
            "traffic": str(traffic),
            "aim": list(aim) if aim else None,
            "must_recall": must_recall,
        },
        expected=f"{crowd.canaries[member]}, and no canary of the {size - 1} others",
        cost_tokens=520,
        cost_requests=4,
        traffic=traffic,
    )


def crowd_probes(
    *,
    seed: str,
    size: int,
    beside: Sequence[tuple[str, int]] = (),
    traffic: Traffic = Traffic.PASSIVE,
) -> list[Probe]:
    """Return the probes of a whole crowd."""
    return [
        canary_probe(seed=seed, size=size, member=member, beside=beside, traffic=traffic)
        for member in range(size)
    ]


def classes_of(trial: Trial) -> list[str]:
    """Return the classes of a conversation: residues of the prompt of its worse question."""
    axes = ("residue_4", "residue_16")
    return [f"{axis}={trial.cell[axis]}" for axis in axes if axis in trial.cell]


def fresh_of_class(name: str, count: int, *, seed: str) -> list[Probe]:
    """Return a new crowd, asked at one residue, one conversation after the other."""
    axis, _, value = name.partition("=")
    aim = (int(axis.removeprefix("residue_")), int(value))
    return [
        canary_probe(
            seed=f"{seed} class {name}", size=count, member=member, aim=aim, must_recall=True
        )
        for member in range(count)
    ]


def recall_of(trials: Sequence[Trial]) -> list[Trial]:
    """Return the same trials judged by whether each conversation got its own canary back."""
    return [
        trial
        if trial.ok is None
        else msgspec.structs.replace(trial, ok=trial.score is Score.RIGHT or trial.score is None)
        for trial in trials
    ]
