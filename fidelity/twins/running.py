"""One twin of one run: its prompts are asked in both arms, its control is shown, it is decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from fidelity.errors import EndpointError, NotApplicable
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.records import Finding, Part, Trial
from fidelity.statistics.ladder import worst
from fidelity.twins.answers import Heard, Names, tokens_of
from fidelity.twins.comparison import (
    Parting,
    details_of,
    held_null,
    part,
    part_texts,
    rung_of,
)
from fidelity.twins.floor import judge_floor
from fidelity.twins.plans import Plan, Sweep, classes_of, fresh_of_class, plans
from fidelity.twins.profile import profile_of
from fidelity.twins.room import Room, room_of
from fidelity.twins.scene import Scene
from fidelity.verdicts.opened import CLASS_TRIALS, missed_classes
from fidelity.words import Blame, Ladder, Outcome, Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.measure import Measure

AGREE = 0.80
"""Of the prompts, in the pool and in every class that is opened by one that does not."""
UNPROVEN = "path not taken: "
MOST_CLASSES = 8
"""That are asked again, the most suspicious ones; a miss outside them keeps the claim from passing
all the same, and fresh prompts do not know how their class was chosen."""
MOST_UNPROVEN = 0.25
"""Of the prompts: that many may miss the path, by timing or for want of a full page."""


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
        seen_at: where a control's altered token must show; None: not a control.
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


class TwinRun:
    """A twin asked of the deployment of one `measure`."""

    def __init__(self, measure: Measure, twin: Twin) -> None:
        """Require what it needs.

        Raises:
            NotApplicable: the server lacks it, and nobody promised it.
            CapabilityMissing: the deployment promised it.
        """
        self.measure = measure
        self.twin = twin
        measure.allow(twin.traffic)
        measure.needs(*twin.needs)
        self.room = room_of(measure)
        self.sweep = twin.sweep(self.room) if callable(twin.sweep) else twin.sweep

    def asked(self) -> list[Trial]:
        """Ask every prompt, and those of each class with one that does not agree."""
        twin, measure = self.twin, self.measure
        count = measure.trials_planned(quick=twin.quick, standard=twin.standard, deep=twin.deep)
        chosen = plans(self.sweep, self.room, seed=measure.seed, count=count)
        trials = self._ask(chosen)
        if not all(UNPROVEN in trial.error for trial in trials):
            suspects = set(missed_classes(trials, self._classes)[:MOST_CLASSES])
            measure.open_classes(
                trials,
                lambda trial: [name for name in self._classes(trial) if name in suspects],
                self._fresh,
                concurrency=CLASS_TRIALS if twin.gathers else 1,
            )
        return trials

    def damaged(self) -> list[Trial]:
        """Ask the prompts of the control: one token altered early in the other arm.

        A trial is ok, which no control may be, unless its arms part exactly there.
        """
        chosen = plans(
            self.sweep,
            self.room,
            seed=f"{self.measure.seed} control",
            count=self.twin.controls,
        )
        return self._ask(chosen, Scene(damaged=True), arm="positive control")

    def decide(self, trials: Sequence[Trial]) -> None:
        """Decide the claim: every prompt agrees, on a floor that is none of a fault.

        Raises:
            Violation, Inconclusive, EndpointError: as `Measure.decide`.
            NotApplicable: the path was never taken, and the deployment does not promise it.
        """
        self._refuse_unproven(trials)
        trials, left_out = _proven(trials)
        finding = self.measure.rate_finding(
            trials,
            AGREE,
            title=f"{self._title}{left_out}",
            effect_name="prompts that agree",
            blame=Blame.DEPLOYMENT,
        )
        everything = [*trials, *self.measure.fresh_trials]
        profile = profile_of(self.twin.name, everything, bound=self.room.bound)
        finding = msgspec.structs.replace(
            finding,
            ladder=_rung(finding, everything),
            reason=f"{finding.reason}; {profile['words']}",
            parts=_with_words(finding.parts, str(profile["words"])),
            minimum_detectable_effect=self._detectable(finding),
        )
        self.measure.decide(
            finding, self._floor(everything), title=self.twin.claim, profile=profile
        )

    # ---- asking

    def _ask(
        self, chosen: Sequence[Plan], scene: Scene | None = None, *, arm: str = ""
    ) -> list[Trial]:
        scene = scene or Scene()
        probes = [self._probe(plan, scene) for plan in chosen]
        at_once = len(probes) if self.twin.gathers else 1
        return self.measure.ask(probes, arm=arm, concurrency=at_once)

    def _classes(self, trial: Trial) -> list[str]:
        return classes_of(self.sweep, trial)

    def _fresh(self, name: str, count: int) -> list[Probe]:
        found = fresh_of_class(self.sweep, self.room, name, seed=self.measure.seed, count=count)
        scene = Scene()
        return [self._probe(plan, scene) for plan in found]

    def _probe(self, plan: Plan, scene: Scene) -> Probe:
        twin, room = self.twin, self.room
        event = 0 if scene.damaged else twin.event_tokens(room) // twin.quick

        async def script(ask: Ask) -> ProbeResult:
            return judged(await twin.ask(ask, room, plan, scene), room)

        return Probe(
            family=f"twin {twin.name}",
            key=plan.key,
            script=script,
            cell=plan.cell,
            recipe={"builder": "twin", "twin": twin.name, "damaged": scene.damaged}
            | {**plan.cell, "seed": plan.seed},
            expected="the same tokens and logprobs in both arms",
            cost_tokens=twin.requests * (plan.length + plan.tokens) + event,
            cost_requests=twin.requests,
            traffic=twin.traffic,
        )

    # ---- deciding

    @property
    def _title(self) -> str:
        weaker = "" if self.room.graded else " (texts only: this server gives no logprobs)"
        return f"{self.twin.claim} in >= {AGREE:.2f} of the prompts{weaker}"

    def _refuse_unproven(self, trials: Sequence[Trial]) -> None:
        doubts = [trial.error for trial in trials if UNPROVEN in trial.error]
        promised = self.twin.path in self.measure.deployment.expects
        if doubts and len(doubts) == len(trials) and not promised:
            raise NotApplicable(doubts[0])

    def _floor(self, trials: Sequence[Trial]) -> Finding:
        held = [null for trial in trials if (null := held_null(trial.details)) is not None]
        if not self.room.graded or self.measure.planning:
            found = judge_floor([])
            outcome, reason, p_value = Outcome.PASS, "without logprobs the floor is not graded", 1.0
        else:
            found = judge_floor(held)
            outcome, reason, p_value = found.outcome, found.reason, found.p_value
        return Finding(
            claim=self.measure.claim,
            suite=self.measure.suite,
            title="identical requests agree up to a floor that a healthy server may have",
            outcome=outcome,
            reason=reason,
            ladder=(Ladder.SELECTION if found.flips else Ladder.DRIFT)
            if outcome is Outcome.FAIL
            else None,
            blame=Blame.DEPLOYMENT if outcome is Outcome.FAIL else None,
            effect_name="null floor, nats",
            effect=found.nats,
            p_value=p_value,
            trials=tuple(trial.id for trial in trials),
            provisional=outcome is Outcome.FAIL,
        )

    def _detectable(self, finding: Finding) -> str:
        if not self.room.graded:
            return f"{finding.minimum_detectable_effect}; texts only: no difference below a token"
        told = "" if self.room.dtype_told else ", taken for its dtype"
        return (
            f"{finding.minimum_detectable_effect}; up to {self.room.bound:g} nats a token count as"
            f" rounding ({self.room.dtype}{told})"
        )


def _proven(trials: Sequence[Trial]) -> tuple[Sequence[Trial], str]:
    """Return the trials that speak for the path, and how many are left out, in words.

    Here and there a prompt does not take it (it was delayed, or is shorter than a page). More than
    a quarter of them are trouble, and stay in as such.
    """
    speak = [trial for trial in trials if UNPROVEN not in trial.error]
    missing = len(trials) - len(speak)
    if not missing or missing > MOST_UNPROVEN * len(trials):
        return trials, ""
    return speak, f" (without {missing} that did not take the path)"


def judged(arms: Arms, room: Room) -> ProbeResult:
    """Return what came of one prompt: whether its arms agree, and where they part.

    Raises:
        EndpointError: logprobs are missing.
    """
    twin, null = _compared(arms, room)
    cell: dict[str, Any] = {
        **arms.cell,
        "nats": float(f"{twin.nats:.3g}"),
        "null_nats": float(f"{null.nats:.3g}"),
    }
    if arms.seen_at is not None:
        return ProbeResult(
            ok=twin.agrees or twin.first != arms.seen_at,
            value=twin.nats,
            cell={**cell, "must part at": arms.seen_at, "parts at": _at(twin)},
            details=details_of(twin, null),
        )
    agrees = twin.agrees and null.agrees
    if arms.doubt and agrees:  # arms that part tell enough, whichever path they took
        return ProbeResult(ok=None, error=f"{UNPROVEN}{arms.doubt}", cell=cell)
    rung = rung_of(twin, null)
    details = details_of(twin, null) | {"rung": "" if rung is None else str(rung)}
    if not agrees:
        who = "the arms" if not twin.agrees else "two identical requests"
        where = twin if not twin.agrees else null
        details["parts"] = f"{who} part: {where.words}"
        cell["parts at"] = _at(where)
    return ProbeResult(ok=agrees, value=twin.nats, cell=cell, paths=arms.paths, details=details)


def _compared(arms: Arms, room: Room) -> tuple[Parting, Parting]:
    """Return the pair of arms that parts most, and the null arm."""
    pairs = ((arms.one, arms.other), *arms.more)
    if not room.graded:
        found = [part_texts(_units(one.reply), _units(other.reply)) for one, other in pairs]
        return max(found, key=_badness), part_texts(*(_units(heard.reply) for heard in arms.null))
    names = Names()
    names.learn(heard.reply for pair in (*pairs, arms.null) for heard in pair)
    found = [_parted(arms, pair, names, room) for pair in pairs]
    return max(found, key=_badness), _parted(arms, arms.null, names, room)


def _parted(arms: Arms, pair: tuple[Heard, Heard], names: Names, room: Room) -> Parting:
    one, other = (tokens_of(heard, names) for heard in pair)
    lost = arms.texts and one == other and _shape(pair[0]) != _shape(pair[1])
    try:
        return part(one, other, dtype=room.dtype, lost=lost, sampled=arms.sampled)
    except ValueError as error:
        raise EndpointError(f"the arms cannot be compared: {error}") from error


def _badness(parting: Parting) -> tuple[bool, bool, float]:
    return (parting.lost, not parting.agrees, parting.nats)


def _units(reply: Reply) -> tuple[Any, ...]:
    return reply.token_ids if reply.token_ids is not None else tuple(reply.text)


def _shape(heard: Heard) -> tuple[Any, ...]:
    reply = heard.reply
    return (reply.text, reply.reasoning, reply.finish_reason, reply.completion_tokens)


def _with_words(parts: tuple[Part, ...], words: str) -> tuple[Part, ...]:
    """Return the parts with the sizes of the differences in the first one, which is the pool."""
    if not parts:
        return parts
    pool = msgspec.structs.replace(parts[0], reason=f"{parts[0].reason}; {words}")
    return (pool, *parts[1:])


def _at(parting: Parting) -> int:
    return parting.at if parting.first is None else parting.first


def _rung(finding: Finding, trials: Sequence[Trial]) -> Ladder | None:
    if finding.outcome is not Outcome.FAIL:
        return None
    rungs = [Ladder(rung) for trial in trials if (rung := trial.details.get("rung"))]
    return worst(rungs)
