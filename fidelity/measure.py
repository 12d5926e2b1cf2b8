"""The fixture `measure`: what a suite says to the harness. One test is one claim.

A suite builds probes, asks them, records its controls and decides; each decision ends the test
with the exception that its outcome maps to. Calls block; concurrency lies inside `ask`.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from fidelity.deployment.beside import Beside
from fidelity.deployment.capabilities import require
from fidelity.errors import NotApplicable
from fidelity.probes.probe import Probe
from fidelity.records import Control, Trial
from fidelity.runs.asking import Asks, Job
from fidelity.runs.deciding import Deciding
from fidelity.runs.reopening import Room
from fidelity.verdicts.controls import control_of
from fidelity.verdicts.decisions import Claim
from fidelity.verdicts.opened import (
    CLASS_THRESHOLD,
    CLASS_TRIALS,
    Classes,
    OpenedClass,
    second_stage,
)
from fidelity.words import Budget, ControlKind, Traffic

if TYPE_CHECKING:
    from pathlib import Path

    from fidelity.config.settings import Settings
    from fidelity.deployment.deployment import Deployment
    from fidelity.runs.journal import Journal

Fresh = Callable[[str, int], Sequence[Probe]]


class Measure(Deciding):
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
        super().__init__(claim, journal=journal)
        self._beside = beside or Beside()
        self._asker = asker
        self.deployment = deployment
        self.settings = settings
        self.planning = planning

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
        require(
            capabilities,
            states=self.deployment.capabilities,
            expects=self.deployment.expects,
            deployment=self.deployment.name,
        )

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

    def sweep_room(self) -> int | None:
        """Return what the lengths of one sweep may cost now, in tokens; None for no bound."""
        if self.planning:
            return None
        return self.deployment.client.caps.sweep_room(*self._asker.left())

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
        only when those asked already fail the claim after Holm over all that missed, or when
        asking again has cost what a slow server affords; classes left out keep it from passing.

        Args:
            trials: of stage 1.
            classes: names of the classes that a trial belongs to, as "axis=value".
            fresh: returns that many new probes of one class; their keys are unique in the class.
            threshold: the class's claim.
            n: fresh probes a class.
            concurrency: of the probes of one class; the deployment's when not given.
        """
        room = Room(self.sweep_room())

        def asked(name: str) -> list[Trial]:
            probes = fresh(name, n)
            if not room.admits(probes):
                return []
            return self.ask(probes, arm=f"class {name}", stage=2, concurrency=concurrency)

        opened = second_stage(trials, classes, asked, threshold=threshold)
        self.note(room.note)
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
