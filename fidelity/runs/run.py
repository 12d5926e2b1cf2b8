"""One run from its first record to its verdict: folder, journal, deployment and event loop.

A deployment that cannot be opened does not end the run: every claim then ends in `error`.
"""

import contextlib
import fnmatch
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.from_thread

from fidelity.deployment.beside import Beside
from fidelity.deployment.patch_states import broken_promises, patch_states
from fidelity.errors import CapSpent, HarnessError
from fidelity.measure import Measure
from fidelity.records import Finding, PatchState, Verdict, read_journal
from fidelity.runs import manifest, resuming
from fidelity.runs.asking import Asker, Desk, Meter
from fidelity.runs.breaker import Breaker
from fidelity.runs.journal import FILE_NAME, LATEST, Journal, new_run_folder, point_latest
from fidelity.verdicts import verdict
from fidelity.verdicts.attribution import longest_miss
from fidelity.verdicts.decisions import Claim
from fidelity.words import Blame, Outcome

if TYPE_CHECKING:
    from fidelity.config.settings import Settings
    from fidelity.deployment.deployment import Deployment

RUNS = "runs"

Opener = Callable[["Settings", Path], Awaitable["Deployment"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a run is asked to do.

    Attributes:
        settings: resolved.
        claims: all that were collected, in order.
        command: what repeats this run.
        opener: opens the deployment; called in the run's event loop.
        golden_opener: opens the golden deployment, where the settings name one; likewise.
        meter: told of progress.
        root: folder that runs/ lies in.
    """

    settings: "Settings"
    claims: tuple[Claim, ...]
    command: tuple[str, ...]
    opener: Opener
    golden_opener: Opener
    meter: Meter
    root: Path
    stop_after: str = ""
    """Of a replay: id of the one trial to ask."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Claims that are no part of this run, with what they would need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a run came to."""

    judgement: verdict.Judgement
    findings: tuple[Finding, ...]
    holm: tuple[str, ...]
    not_run: tuple[str, ...]
    patches: tuple[PatchState, ...]
    duration_s: float


class Run:
    """A run in progress. Made by the plugin, used from pytest's main thread."""

    def __init__(self, order: Order) -> None:
        """Open folder and journal, then the deployment.

        Raises:
            JournalError: the folder holds a run, or one that cannot be continued.
        """
        self._order = order
        self._planned = tuple(claim.id for claim in order.claims)
        self._started = time.monotonic()
        self._before_s = 0.0
        """What earlier parts of a resumed run took."""
        self._stack = contextlib.ExitStack()
        self._deployment: Deployment | None = None
        self._failure: HarnessError | None = None
        self._golden = Beside()
        self._breaker = Breaker()
        self.folder, self.journal = self._open_journal()
        self._epoch_base = 1 + max((m.epoch for m in self.journal.manifests), default=-1)
        self._epoch_seen = -1
        self._stack.callback(self.journal.close)
        try:
            self._open_deployment()
        except BaseException as stop:
            # told of the exception, the event loop drops what it was opening and does not wait
            self._stack.__exit__(type(stop), stop, stop.__traceback__)
            raise

    def _open_journal(self) -> tuple[Path, Journal]:
        settings = self._order.settings
        root = self._order.root / RUNS
        if settings.resume:
            folder = (settings.run_dir or root / LATEST).resolve()
            journal = Journal.resume(folder)
            self._before_s = resuming.spent_s(read_journal(folder / FILE_NAME))
            try:
                resuming.refuse_other_question(journal, folder, settings.settings, self._planned)
            except HarnessError:
                journal.close()
                raise
        elif settings.run_dir is not None:
            folder = settings.run_dir.resolve()
            folder.mkdir(parents=True, exist_ok=True)
            journal = Journal.create(folder)
        else:
            folder = new_run_folder(root)
            journal = Journal.create(folder)
        if folder.parent == root.resolve():
            point_latest(folder)
        return folder, journal

    def _open_deployment(self) -> None:
        self._portal = self._stack.enter_context(anyio.from_thread.start_blocking_portal())
        try:
            deployment = self._portal.call(self._order.opener, self._order.settings, self.folder)
        except HarnessError as failure:
            self._failure = failure
        else:
            self._deployment = deployment
            self._stack.callback(self._portal.call, deployment.aclose)
            resuming.refuse_other_model(self.journal, self.folder, deployment.model)
            self._open_golden()
        self._epoch()

    def _open_golden(self) -> None:
        """Open the deployment to compare with; claims that need it say why it is not there."""
        settings = self._order.settings.beside
        if settings is None:
            return
        try:
            opened = self._portal.call(self._order.golden_opener, settings, self.folder)
        except HarnessError as failure:
            self._golden = Beside(failure=failure)
        else:
            self._golden = Beside(deployment=opened)
            self._stack.callback(self._portal.call, opened.aclose)

    def _epoch(self) -> int:
        """Return the current epoch; its first use in a new one writes that epoch's manifest."""
        opened = (self._deployment, self._golden.deployment)
        since_opened = sum(one.client.epochs.epoch for one in opened if one is not None)
        epoch = self._epoch_base + since_opened
        if epoch != self._epoch_seen:
            self._epoch_seen = epoch
            self.journal.append(
                manifest.manifest_of(
                    self._order.settings,
                    self._deployment,
                    run_id=self.journal.manifests[0].run_id
                    if self.journal.manifests
                    else self.folder.name,
                    epoch=epoch,
                    command=self._order.command,
                    planned=self._planned,
                    golden=self._golden,
                    left_out=self._order.left_out,
                )
            )
        return epoch

    def _unmet(self) -> tuple[str, ...]:
        """Return what the deployment promises and discovery did not find."""
        if self._deployment is None:
            return ()
        states = self._deployment.capabilities
        return tuple(
            name
            for name in self._deployment.expects
            if name not in states or not states[name].present
        )

    def _unmet_claims(self, findings: Mapping[str, Finding]) -> tuple[str, ...]:
        """Return the claims that the deployment requires and that do not apply to it."""
        required = self._order.settings.target.required
        return tuple(
            f"claim {name}"
            for name, finding in findings.items()
            if finding.outcome is Outcome.NOT_APPLICABLE
            and any(fnmatch.fnmatchcase(name, pattern) for pattern in required)
        )

    def _unmet_patches(self, patches: tuple[PatchState, ...]) -> tuple[str, ...]:
        """Return the patches that the deployment has on by its description, and that are off."""
        if self._deployment is None:
            return ()
        return tuple(broken_promises(self._deployment, patches))

    def _check_time(self) -> None:
        limit = self._order.settings.max_time_s
        if limit is not None and time.monotonic() - self._started > limit:
            raise CapSpent(f"the run's time cap of {limit:g} s (--fidelity-max-time-s) is spent")

    def _left(self) -> tuple[float | None, int]:
        """Return the seconds left of the time cap, and how many claims are not decided."""
        limit = self._order.settings.max_time_s
        seconds = None if limit is None else limit - (time.monotonic() - self._started)
        decided = sum(1 for name in self._planned if name in self.journal.findings)
        return seconds, max(1, len(self._planned) - decided)

    def measure_for(self, claim: Claim) -> Measure:
        """Return the fixture of one claim.

        Raises:
            HarnessError: the deployment could not be opened; the same for every claim.
        """
        if self._failure is not None or self._deployment is None:
            raise self._failure or HarnessError("the deployment was not opened")
        desk = Desk(
            journal=self.journal,
            client=self._deployment.client,
            portal=self._portal,
            meter=self._order.meter,
            breaker=self._breaker,
            seed=self._order.settings.seed,
            concurrency=self._order.settings.concurrency,
            epoch=self._epoch,
            check_time=self._check_time,
            redactor=self._order.settings.redactor,
            left=self._left,
            stop_after=self._order.stop_after,
        )
        return Measure(
            claim,
            asker=Asker(desk, claim=claim.id, suite=claim.suite),
            journal=self.journal,
            deployment=self._deployment,
            settings=self._order.settings,
            beside=self._golden,
        )

    def record_without_decision(
        self, claim: Claim, outcome: Outcome, reason: str, blame: Blame | None = None
    ) -> None:
        """Write the finding of a claim that ended before any decision, or after one by error."""
        finding = Finding(
            claim=claim.id,
            suite=claim.suite,
            title=claim.title,
            outcome=outcome,
            reason=self._order.settings.redactor.text(reason)[:4_000],
            blame=blame,
            trials=tuple(t.id for t in self.journal.trials.values() if t.claim == claim.id),
        )
        held = self.journal.findings.get(claim.id)
        if held is None or (held.outcome, held.reason) != (finding.outcome, finding.reason):
            self.journal.append(finding)

    def finish(self, *, interrupted: bool) -> Finished:
        """Settle the findings, write patches and verdict, close server and journal."""
        try:
            return self._settle(interrupted=interrupted)
        finally:
            self._stack.close()

    def _settle(self, *, interrupted: bool) -> Finished:
        patches: tuple[PatchState, ...] = ()
        if not interrupted and self._deployment is not None:
            declared = self._order.settings.file.patches
            patches = tuple(self._portal.call(patch_states, self._deployment, declared))
            for state in patches:
                self.journal.append(state)
        findings = {
            name: finding
            for name, finding in self.journal.findings.items()
            if name in set(self._planned)
        }
        resolution = verdict.resolve(
            findings,
            self.journal.controls.values(),
            self._planned,
            longest_miss=longest_miss(self.journal.trials.values()),
        )
        if not interrupted:  # a resumed run settles over all of its claims
            for finding in resolution.changed:
                self.journal.append(finding)
        judgement = verdict.judge(
            resolution,
            self._planned,
            interrupted=interrupted,
            unmet=(*self._unmet(), *self._unmet_claims(findings), *self._unmet_patches(patches)),
        )
        duration_s = round(self._before_s + time.monotonic() - self._started, 3)
        exchanges = [e for trial in self.journal.trials.values() for e in trial.exchanges]
        self.journal.append(
            Verdict(
                verdict=judgement.verdict,
                blame=judgement.blame,
                sentence=judgement.sentence,
                exit_code=judgement.exit_code,
                counts=judgement.counts,
                holm=resolution.holm,
                interrupted=interrupted,
                duration_s=duration_s,
                requests=len(exchanges),
                prompt_tokens=sum(e.prompt_tokens or 0 for e in exchanges),
                completion_tokens=sum(e.completion_tokens or 0 for e in exchanges),
            )
        )
        return Finished(
            judgement=judgement,
            findings=resolution.findings,
            holm=resolution.holm,
            not_run=tuple(name for name in self._planned if name not in findings),
            patches=patches,
            duration_s=duration_s,
        )

    @property
    def journal_path(self) -> Path:
        """The run's journal."""
        return self.folder / FILE_NAME
