"""One twin of one run: its prompts are asked in both arms, its control is shown, it is decided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from fidelity.checks.affording import room_of as tokens_of_a_sweep
from fidelity.errors import NotApplicable
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.records import Finding, Part, Trial
from fidelity.statistics.ladder import worst
from fidelity.statistics.stats import ALPHA, p_at_least
from fidelity.twins.comparison import held_null
from fidelity.twins.floor import judge_floor
from fidelity.twins.judging import TEXT, UNPROVEN, judged
from fidelity.twins.pilot import piloted
from fidelity.twins.plans import (
    Plan,
    Sweep,
    classes_of,
    fresh_of_class,
    long_lengths,
    long_plans,
    plans,
)
from fidelity.twins.profile import profile_of
from fidelity.twins.room import room_of
from fidelity.twins.scene import Scene
from fidelity.verdicts.opened import CLASS_TRIALS, missed_classes
from fidelity.words import Blame, Concern, Ladder, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.measure import Measure
    from fidelity.twins.twin import Twin

AGREE = 0.80
"""Of the prompts, in the pool and in every class that is opened by one that does not."""
AGREE_OVER_ALL = 0.95
"""Of all prompts of both stages together. That this holds is not shown at a quick budget; that it
does not hold can be, and fails the claim: where rounding explains the arms, few prompts part."""
DECISIVE_P = 1e-6
"""Of that claim: then no further class is asked; a run's other claims cannot correct it away."""
MOST_CLASSES = 8
"""That are asked again, the most suspicious ones. The others stay opened and unasked: they count in
Holm's family, and with them the claim can fail and cannot pass."""
MANY_REQUESTS = 6
"""For one prompt: twins of more ask the first of the long lengths only."""
TWINS = 12
"""That share what a budget affords for long prompts."""
MOST_UNPROVEN = 0.25
"""Of the prompts: that many may miss the path, by timing or for want of a full page."""


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
        self.room = piloted(measure, room_of(measure))
        sweep = twin.sweep(self.room) if callable(twin.sweep) else twin.sweep
        self.sweep = replace(sweep.fitted(self.room), long=self._long(sweep))
        self._told: list[bool] = []

    def asked(self) -> list[Trial]:
        """Ask every prompt, and those of the classes with one that does not agree."""
        twin, measure = self.twin, self.measure
        count = measure.trials_planned(quick=twin.quick, standard=twin.standard, deep=twin.deep)
        chosen = plans(self.sweep, self.room, seed=measure.seed, count=count)
        chosen += long_plans(self.sweep, seed=measure.seed)
        trials = self._ask(chosen)
        if not all(UNPROVEN in trial.error for trial in trials):
            suspects = missed_classes(trials, self._classes)[:MOST_CLASSES]
            measure.open_classes(
                trials,
                self._classes,
                lambda name, n: self._fresh(name, n) if name in suspects else [],
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
        finding = self._pool(trials)
        everything = [*trials, *self.measure.fresh_trials]
        profile = profile_of(self.twin.name, everything, bound=self.room.bound)
        finding = msgspec.structs.replace(
            finding,
            ladder=_worst_rung(everything) if finding.outcome is Outcome.FAIL else None,
            reason=f"{finding.reason}; {profile['words']}",
            parts=_with_words(finding.parts, str(profile["words"])),
            minimum_detectable_effect=self._detectable(finding),
        )
        findings = [
            msgspec.structs.replace(found, concern=_concern(everything))
            for found in (finding, *self._over_all(everything))
        ]
        findings.append(self._floor(everything))
        self.measure.decide(*findings, title=self.twin.claim, profile=profile)

    # ---- asking

    def _long(self, sweep: Sweep) -> tuple[int, ...]:
        """Return the lengths, far above the sweep's own, that the budget affords one prompt of."""
        rows = long_lengths(sweep, self.room, self.measure.budget)
        if self.twin.requests > MANY_REQUESTS:
            rows = rows[:1]
        room = tokens_of_a_sweep(self.measure)
        while rows and room is not None and self.twin.requests * sum(rows) > room // TWINS:
            self.measure.note(
                f"no prompt of {rows[-1]:,} tokens: the budget's token cap ends there"
            )
            rows = rows[:-1]
        return rows

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
        if _p_over_all(self._told) < DECISIVE_P:
            return []
        found = fresh_of_class(self.sweep, name, seed=self.measure.seed, count=count)
        scene = Scene()
        return [self._probe(plan, scene) for plan in found]

    def _probe(self, plan: Plan, scene: Scene) -> Probe:
        twin, room = self.twin, self.room
        event = 0 if scene.damaged else twin.event_tokens(room) // twin.quick

        async def script(ask: Ask) -> ProbeResult:
            longer = replace(plan, tokens=plan.tokens + room.answers_at)
            result = judged(await twin.ask(ask, room, longer, scene), room)
            if (agrees := _agrees(result)) is not None and not scene.damaged:
                self._told.append(agrees)
            return result

        return Probe(
            family=f"twin {twin.name}",
            key=plan.key,
            script=script,
            cell=plan.cell,
            recipe={"builder": "twin", "twin": twin.name, "damaged": scene.damaged}
            | {**plan.cell, "seed": plan.seed},
            expected="the same tokens and logprobs in both arms",
            cost_tokens=twin.requests * (plan.length + plan.tokens + room.answers_at) + event,
            cost_requests=twin.requests,
            traffic=twin.traffic,
        )

    # ---- deciding

    @property
    def _title(self) -> str:
        weaker = "" if self.room.graded else " (texts only: this server gives no logprobs)"
        return f"{self.twin.claim} in >= {AGREE:.2f} of the prompts{self._lengths}{weaker}"

    @property
    def _lengths(self) -> str:
        sweep = self.sweep
        beyond = f", one each of {_listed(sweep.long)}" if sweep.long else ""
        return f" of {sweep.low:,} to {sweep.high:,} tokens{beyond}"

    def _refuse_unproven(self, trials: Sequence[Trial]) -> None:
        doubts = [trial.error for trial in trials if UNPROVEN in trial.error]
        promised = self.twin.path in self.measure.deployment.expects
        if doubts and len(doubts) == len(trials) and not promised:
            raise NotApplicable(doubts[0])

    def _pool(self, trials: Sequence[Trial]) -> Finding:
        """Return the claim over the prompts that prove the path.

        Prompts that part stay in whichever path they took; so it fails only if it does with every
        prompt that agrees counted in, proven or not.
        """
        speak, left_out = _proven(trials)
        finding = self._rate(speak, left_out)
        if finding.outcome is not Outcome.FAIL or len(speak) == len(trials):
            return finding
        at_best = self._rate(trials, left_out)
        if at_best.outcome is Outcome.FAIL:
            return at_best
        return _undecided(finding)

    def _rate(self, trials: Sequence[Trial], left_out: str) -> Finding:
        return self.measure.rate_finding(
            trials,
            AGREE,
            title=f"{self._title}{left_out}",
            effect_name="prompts that agree",
            blame=Blame.DEPLOYMENT,
        )

    def _over_all(self, trials: Sequence[Trial]) -> list[Finding]:
        """Return the claim over both stages where it is refuted, nothing where it is not."""
        agree = [agrees for trial in trials if (agrees := _agrees(trial)) is not None]
        p_value = _p_over_all(agree)
        if p_value >= ALPHA:
            return []
        return [
            Finding(
                claim=self.measure.claim,
                suite=self.measure.suite,
                title=f"prompts of both stages agree in >= {AGREE_OVER_ALL:.2f}",
                outcome=Outcome.FAIL,
                reason=f"{agree.count(False)} of {len(agree)} prompts part by more than rounding",
                ladder=_worst_rung(trials),
                blame=Blame.DEPLOYMENT,
                effect_name="prompts that agree",
                effect=agree.count(True) / len(agree),
                threshold=AGREE_OVER_ALL,
                k=agree.count(True),
                n=len(agree),
                p_value=p_value,
                trials=tuple(trial.id for trial in trials),
                provisional=True,
            )
        ]

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
        effect = f"{finding.minimum_detectable_effect}; prompts{self._lengths}"
        if not self.room.graded:
            return f"{effect}; texts only: no difference below a token"
        told = "" if self.room.dtype_told else ", taken for its dtype"
        return (
            f"{effect}; up to {self.room.bound:g} nats a token count as"
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


def _agrees(told: ProbeResult | Trial) -> bool | None:
    """Return whether the arms of a prompt agree, on whichever path; None: not measured."""
    return True if UNPROVEN in told.error else told.ok


def _concern(trials: Sequence[Trial]) -> Concern:
    """Return whether anything that was read differs, or only the shape in which it is told."""
    missed = [trial.details.get("shape", "") for trial in trials if trial.ok is False]
    told_alone = bool(missed) and all(shape not in {"", TEXT} for shape in missed)
    return Concern.CONFORMANCE if told_alone else Concern.READING


def _undecided(finding: Finding) -> Finding:
    """Return a failure as what is not decided: prompts that agree were left out of it."""
    why = "with the prompts that agree and do not prove their path it does not fail"
    parts = tuple(
        msgspec.structs.replace(part, outcome=Outcome.INCONCLUSIVE, blame=None)
        if part.outcome is Outcome.FAIL
        else part
        for part in finding.parts
    )
    return msgspec.structs.replace(
        finding,
        outcome=Outcome.INCONCLUSIVE,
        blame=None,
        ladder=None,
        parts=parts,
        reason=f"{finding.reason}; {why}",
    )


def _listed(lengths: Sequence[int]) -> str:
    *first, last = (f"{length:,}" for length in lengths)
    return f"{', '.join(first)} and {last}" if first else last


def _p_over_all(agree: Sequence[bool]) -> float:
    """Return the p-value of "at least `AGREE_OVER_ALL` agree"; 1 when nothing was asked."""
    return p_at_least(sum(agree), len(agree), AGREE_OVER_ALL) if agree else 1.0


def _worst_rung(trials: Sequence[Trial]) -> Ladder | None:
    return worst([Ladder(rung) for trial in trials if (rung := trial.details.get("rung"))])


def _with_words(parts: tuple[Part, ...], words: str) -> tuple[Part, ...]:
    """Return the parts with the sizes of the differences in the first one, which is the pool."""
    if not parts:
        return parts
    pool = msgspec.structs.replace(parts[0], reason=f"{parts[0].reason}; {words}")
    return (pool, *parts[1:])
