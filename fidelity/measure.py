"""The fixture `measure`: what a suite says to the harness. One test is one claim.

A suite builds probes, asks them, records its controls and decides; each decision ends the test
with the exception that its outcome maps to. Calls block; concurrency lies inside `ask`.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fidelity.errors import (
    CapabilityMissing,
    EndpointError,
    HarnessError,
    Inconclusive,
    NotApplicable,
    Violation,
)
from fidelity.probes.probe import Probe
from fidelity.records import Control, Finding, Trial
from fidelity.runs.asking import Asks, Job
from fidelity.verdicts.controls import control_of
from fidelity.verdicts.decisions import (
    Claim,
    all_true_finding,
    noninferior_finding,
    rate_finding,
    undecided_finding,
)
from fidelity.verdicts.opened import (
    CLASS_THRESHOLD,
    CLASS_TRIALS,
    Classes,
    OpenedClass,
    second_stage,
)
from fidelity.verdicts.parts import merge
from fidelity.words import Blame, Budget, ControlKind, Ladder, Outcome, Traffic

if TYPE_CHECKING:
    from pathlib import Path

    from fidelity.config.settings import Settings
    from fidelity.deployment.deployment import Deployment
    from fidelity.runs.journal import Journal

Fresh = Callable[[str, int], Sequence[Probe]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The golden deployment of a run: open, failed, or (neither) not asked for."""

    deployment: "Deployment | None" = None
    failure: HarnessError | None = None


class Measure:
    """One claim being measured.

    Attributes:
        claim: its id, "<suite>/<test>[<param>]".
        suite: stem of its file, without "test_".
        budget: quick, standard or deep; it changes numbers of trials, never a threshold.
        seed: of the run; take random numbers from `rng`.
        deployment: what is measured, with its client and capabilities.
        settings: all settings of the run.
        planning: True under `fidelity plan`: nothing is sent, trials are made up.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        asker: Asks,
        journal: "Journal | None",
        deployment: "Deployment",
        settings: "Settings",
        planning: bool = False,
        beside: Beside | None = None,
    ) -> None:
        self._claim = claim
        self._beside = beside or Beside()
        self._asker = asker
        self._journal = journal
        self._opened: list[OpenedClass] = []
        self._controls: list[Control] = []
        self._needs: list[str] = []
        self._notes: list[str] = []
        self.deployment = deployment
        self.settings = settings
        self.planning = planning
        self.finding: Finding | None = None
        """The last decision, None while there is none."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Capabilities that were required so far."""
        return tuple(self._needs)

    @property
    def fresh_trials(self) -> list[Trial]:
        """Trials of the classes that were opened so far."""
        return [trial for found in self._opened for trial in found.trials]

    @property
    def claim(self) -> str:
        """Id of the claim."""
        return self._claim.id

    @property
    def suite(self) -> str:
        """Stem of the suite's file, without "test_"."""
        return self._claim.suite

    @property
    def folder(self) -> "Path | None":
        """Folder of the run, for files that a finding names; None in a plan."""
        return None if self._journal is None else self._journal.path.parent

    @property
    def budget(self) -> Budget:
        """Budget of the run."""
        return self.settings.budget

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.settings.seed

    @property
    def golden(self) -> "Deployment | None":
        """The deployment to compare with, None when none was given.

        Raises:
            HarnessError: one was given and could not be opened.
        """
        if self._beside.failure is not None:
            raise self._beside.failure
        return self._beside.deployment

    def rng(self, *key: object) -> random.Random:
        """Return random numbers of their own for this seed, claim and key, the same in each run."""
        name = repr((self.seed, self.claim, key)).encode("utf-8", "replace")
        return random.Random(hashlib.blake2s(name).digest())  # noqa: S311 - probes, not secrets

    def trials_planned(self, *, quick: int, standard: int, deep: int) -> int:
        """Return the number of trials that the budget affords."""
        return {Budget.QUICK: quick, Budget.STANDARD: standard, Budget.DEEP: deep}[self.budget]

    def needs(self, *capabilities: str) -> None:
        """Require capabilities of the deployment.

        Raises:
            CapabilityMissing: the deployment expects one that is absent or unproven.
            NotApplicable: one is absent, and nobody promised it.
        """
        self._needs += capabilities
        if self.planning:
            return
        for name in capabilities:
            state = self.deployment.capabilities.get(name)
            if state is not None and state.present:
                continue
            detail = f" ({state.detail})" if state is not None and state.detail else ""
            unlock = (
                f"; the server's {state.unlock} unlocks it"
                if state is not None and state.unlock
                else ""
            )
            if name in self.deployment.expects:
                raise CapabilityMissing(
                    f"{self.deployment.name} promises {name!r}, and it is absent or unproven"
                    f"{detail}{unlock}"
                )
            raise NotApplicable(f"the server has no {name}{detail}{unlock}")

    def note(self, sentence: str) -> None:
        """Say something about the claim's scope beside its decision; "" says nothing."""
        if sentence:
            self._notes.append(sentence)

    def allow(self, traffic: Traffic) -> None:
        """Require that a traffic class may be sent to this deployment.

        Raises:
            NotApplicable: it was not allowed.
        """
        if traffic is not Traffic.PASSIVE and traffic not in self.settings.allow:
            raise NotApplicable(f"{traffic} traffic is not allowed: --fidelity-allow {traffic}")

    def ask(
        self,
        probes: Sequence[Probe],
        *,
        arm: str = "",
        stage: int = 1,
        concurrency: int | None = None,
    ) -> list[Trial]:
        """Ask every probe that the journal does not hold yet; return all trials in order.

        Infrastructure trouble leaves a trial with `error` and without `ok`.

        Raises:
            EndpointError: the server stopped answering altogether.
            TrafficRefused: a probe's traffic class is not allowed, or a hard cap is spent.
            ConfigError: two probes with one key in this arm and stage.
        """
        groups = [(Job(probe=probe, arm=arm, stage=stage),) for probe in probes]
        return [trials[0] for trials in self._asker.ask(groups, concurrency=concurrency)]

    def ask_arms(
        self,
        arms: Mapping[str, Sequence[Probe]],
        *,
        stage: int = 1,
        concurrency: int | None = None,
    ) -> dict[str, list[Trial]]:
        """Ask several arms, interleaved: the i-th probes of all arms one after the other.

        All arms of one i lie within one epoch, also when the run was killed and resumed. For
        `noninferior` the probes at one i carry the same key.

        Raises:
            ValueError: arms of different lengths; otherwise as `ask`.
        """
        names = list(arms)
        rows = zip(*(arms[name] for name in names), strict=True)
        groups = [
            tuple(Job(probe=p, arm=name, stage=stage) for name, p in zip(names, row, strict=True))
            for row in rows
        ]
        asked = self._asker.ask(groups, concurrency=concurrency)
        return {name: [trials[i] for trials in asked] for i, name in enumerate(names)}

    def open_classes(
        self,
        trials: Sequence[Trial],
        classes: Classes,
        fresh: Fresh,
        *,
        threshold: float = CLASS_THRESHOLD,
        n: int = CLASS_TRIALS,
        concurrency: int | None = None,
    ) -> list[OpenedClass]:
        """Ask `n` fresh probes of every class with a miss; the next decision counts them in.

        Call it before deciding. Classes are opened in order of suspicion, and opening stops early
        only when those asked already fail the claim after Holm over all that missed.

        Args:
            trials: of stage 1.
            classes: names of the classes that a trial belongs to, as "axis=value".
            fresh: returns that many new probes of one class; their keys are unique in the class.
            threshold: the class's claim.
            n: fresh probes a class.
            concurrency: of the probes of one class; the deployment's when not given.
        """

        def asked(name: str) -> list[Trial]:
            return self.ask(fresh(name, n), arm=f"class {name}", stage=2, concurrency=concurrency)

        opened = second_stage(trials, classes, asked, threshold=threshold)
        self._opened += opened
        return opened

    def control(
        self,
        kind: ControlKind | Literal["positive", "null"],
        what: str,
        probes: Sequence[Probe] | Sequence[Trial],
        *,
        must: str = "",
        arm: str = "",
    ) -> Control:
        """Record a control: positive must fail, null must agree.

        Args:
            kind: positive (we damaged the request ourselves) or null (two identical requests).
            what: what we did, e.g. "the fact is cut out of the context"; unique in the claim.
            probes: to ask, or trials that were asked already. Trial.ok says: came out right.
            must: what must come of it, for the report; "fail" or "agree" when not given.
            arm: of the probes; otherwise the kind and `what`.

        Raises:
            EndpointError: none of the control's trials could be measured.
        """
        kind = ControlKind(kind)
        trials = [item for item in probes if isinstance(item, Trial)]
        asked = [item for item in probes if isinstance(item, Probe)]
        if asked:
            trials += self.ask(asked, arm=arm or f"{kind} control: {what}")
        control = control_of(self._claim, kind, what, trials, must=must)
        if self._journal is not None:
            held = self._journal.controls.get((control.claim, control.control, control.what))
            if held is None or (held.ok, held.trials) != (control.ok, control.trials):
                self._journal.append(control)
        self._controls.append(control)
        return control

    def rate_at_least(
        self,
        trials: Sequence[Trial],
        threshold: float,
        *,
        title: str,
        effect_name: str = "recall",
        blame: Blame | None = None,
    ) -> None:
        """Decide that the rate of ok trials is >= threshold, in every opened class too."""
        self.decide(
            self.rate_finding(trials, threshold, title=title, effect_name=effect_name, blame=blame)
        )

    def noninferior(
        self, trials: Sequence[Trial], control_trials: Sequence[Trial], margin: float, *, title: str
    ) -> None:
        """Decide that this arm is at most `margin` worse than its control arm, pair by pair."""
        self.decide(self.noninferior_finding(trials, control_trials, margin, title=title))

    def all_true(
        self, trials: Sequence[Trial], *, title: str, ladder: Ladder | None = None
    ) -> None:
        """Decide that every single trial holds: one counter-example fails the claim."""
        self.decide(self.all_true_finding(trials, title=title, ladder=ladder))

    def rate_finding(
        self,
        trials: Sequence[Trial],
        threshold: float,
        *,
        title: str,
        effect_name: str = "recall",
        blame: Blame | None = None,
    ) -> Finding:
        """Return what `rate_at_least` would decide, for `decide` together with others."""
        return rate_finding(
            self._claim,
            trials,
            threshold,
            title=title,
            effect_name=effect_name,
            opened=self._opened,
            blame=blame,
        )

    def noninferior_finding(
        self,
        trials: Sequence[Trial],
        control_trials: Sequence[Trial],
        margin: float,
        *,
        title: str,
        blame: Blame = Blame.DEPLOYMENT,
    ) -> Finding:
        """Return what `noninferior` would decide, for `decide` together with others."""
        return noninferior_finding(
            self._claim,
            trials,
            control_trials,
            margin,
            title=title,
            blame=blame,
            opened=self._opened,
        )

    def all_true_finding(
        self,
        trials: Sequence[Trial],
        *,
        title: str,
        ladder: Ladder | None = None,
        blame: Blame = Blame.DEPLOYMENT,
    ) -> Finding:
        """Return what `all_true` would decide, for `decide` together with others."""
        return all_true_finding(self._claim, trials, title=title, ladder=ladder, blame=blame)

    def undecided_finding(self, trials: Sequence[Trial], *, title: str, reason: str) -> Finding:
        """Return an inconclusive part: misses that a weak model and a broken server both have."""
        return undecided_finding(self._claim, trials, title=title, reason=reason)

    def decide(
        self, *findings: Finding, title: str = "", profile: dict[str, Any] | None = None
    ) -> None:
        """Record one finding for the claim, the worst of those given, and end the test by it.

        A profile says where two arms part, for the report; see `Finding.profile`.

        Raises:
            Violation: fail. Inconclusive: inconclusive, or a control of this claim was blind.
            EndpointError: error. NotApplicable: not applicable.
            HarnessError: the claim was decided already.
        """
        if self.finding is not None:
            raise HarnessError(
                f"{self.claim} was decided already: give decide() all findings at once"
            )
        finding = self._under_controls(merge(self._claim, findings, title=title))
        finding = _with_needs(finding, tuple(self._needs))
        if profile is not None:
            finding = msgspec.structs.replace(finding, profile=profile)
        if self._notes:
            reason = "; ".join((finding.reason, *self._notes))
            finding = msgspec.structs.replace(finding, reason=reason)
        self.record(finding)
        _raise_for(finding)

    def record(self, finding: Finding) -> None:
        """Write a finding to the journal unless it holds the very same one."""
        self.finding = finding
        if self._journal is None:
            return
        held = self._journal.findings.get(finding.claim)
        if held is None or not _same(held, finding):
            self._journal.append(finding)

    def _under_controls(self, finding: Finding) -> Finding:
        blind = next((control for control in self._controls if not control.ok), None)
        if blind is None or finding.outcome is not Outcome.PASS:
            return finding
        reason = (
            f"the {blind.control} control ({blind.what}) must {blind.expected} and was"
            f" {blind.observed}; without it: {finding.reason}"
        )
        return msgspec.structs.replace(finding, outcome=Outcome.INCONCLUSIVE, reason=reason)


def _raise_for(finding: Finding) -> None:
    match finding.outcome:
        case Outcome.PASS:
            return
        case Outcome.FAIL:
            raise Violation(_words(finding))
        case Outcome.INCONCLUSIVE:
            raise Inconclusive(_words(finding))
        case Outcome.ERROR:
            raise EndpointError(_words(finding))
        case Outcome.NOT_APPLICABLE:
            raise NotApplicable(finding.reason)


def _words(finding: Finding) -> str:
    return f"{finding.title}: {finding.reason}"


def _with_needs(finding: Finding, needs: tuple[str, ...]) -> Finding:
    return msgspec.structs.replace(finding, needs=needs or finding.needs)


def _same(held: Finding, finding: Finding) -> bool:
    """True when a finding says what the journal says already, settled or not."""
    return held == msgspec.structs.replace(finding, at=held.at, provisional=held.provisional)
