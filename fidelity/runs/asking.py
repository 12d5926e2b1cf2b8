"""Sends probes concurrently and journals each trial; what the journal holds is not asked again.

A trial that infrastructure trouble cut off in an earlier epoch is asked again as its next attempt.
Probes of one group (the arms of a comparison) are asked one after the other and within one epoch:
a group that a kill tore apart is asked anew as a whole, so that arms are never mixed.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.from_thread
import msgspec

from fidelity.errors import ConfigError, EndpointError, NotApplicable, TrafficRefused
from fidelity.probes.probe import Ask, Probe, ProbeResult, excerpt
from fidelity.records import Exchange, Trial
from fidelity.runs.breaker import Breaker
from fidelity.runs.journal import Journal

if TYPE_CHECKING:
    from fidelity.config.redaction import Redactor
    from fidelity.endpoint.client import Client

MAX_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One probe in one arm and stage of a claim."""

    probe: Probe
    arm: str = ""
    stage: int = 1


Group = tuple[Job, ...]


class Meter(Protocol):
    """What the progress display wants to know while a claim asks; called from the event loop."""

    def begin(self, claim: str, trials: int, tokens: int) -> None:
        """A batch of probes starts."""

    def advance(self, tokens: int) -> None:
        """One trial ended."""

    def end(self) -> None:
        """The batch is over, whatever happened."""


class Asks(Protocol):
    """Whatever turns groups of jobs into trials: a live deployment, or a plan."""

    def ask(self, groups: Sequence[Group], *, concurrency: int | None = None) -> list[list[Trial]]:
        """Return the trials of each group, in order."""

    def left(self) -> tuple[float | None, int]:
        """Return the seconds left of a time cap, None without one, and claims not yet decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What asking needs of a run."""

    journal: Journal
    client: "Client"
    portal: anyio.from_thread.BlockingPortal
    meter: Meter
    breaker: Breaker
    seed: int
    concurrency: int
    epoch: Callable[[], int]
    check_time: Callable[[], None]
    """Raises TrafficRefused when the run's time is spent."""
    redactor: "Redactor"
    left: Callable[[], tuple[float | None, int]] = lambda: (None, 1)
    """Seconds of the run's time cap (None without one) and claims that are not yet decided."""
    stop_after: str = ""
    """Id of the one trial to ask in a replay; asking stops behind it."""


def trial_id(*, claim: str, job: Job, attempt: int, seed: int) -> str:
    """Return the stable id of one execution of a probe."""
    parts = (claim, job.arm, job.stage, job.probe.key, attempt, seed)
    return "t" + hashlib.blake2s(repr(parts).encode("utf-8", "replace"), digest_size=6).hexdigest()


class Asker:
    """Asks the probes of one claim of a live deployment."""

    def __init__(self, desk: Desk, *, claim: str, suite: str) -> None:
        self._desk = desk
        self._claim = claim
        self._suite = suite

    def left(self) -> tuple[float | None, int]:
        """Return the seconds left of the run's time cap, and how many claims are not decided."""
        return self._desk.left()

    def ask(self, groups: Sequence[Group], *, concurrency: int | None = None) -> list[list[Trial]]:
        """Return the trials of each group, in order; blocks until all are done.

        Raises:
            EndpointError: the server stopped answering altogether.
            TrafficRefused: a class that is not allowed, or a spent cap.
            ConfigError: two probes with one key.
        """
        self._refuse_double_keys(groups)
        found = [self._held(group) for group in groups]
        pending = [index for index, trials in enumerate(found) if trials is None]
        if pending:
            future = self._desk.portal.start_task_soon(
                self._ask_pending, groups, found, pending, concurrency or self._desk.concurrency
            )
            try:
                future.result()
            except BaseExceptionGroup as failed:
                raise _first_leaf(failed) from failed
            except BaseException:
                future.cancel()
                raise
        return [trials for trials in found if trials is not None]

    def _refuse_double_keys(self, groups: Sequence[Group]) -> None:
        seen: set[tuple[str, int, str]] = set()
        for group in groups:
            for job in group:
                name = (job.arm, job.stage, job.probe.key)
                if name in seen:
                    raise ConfigError(
                        f"{self._claim} asks two probes with the key {job.probe.key!r} in arm"
                        f" {job.arm!r}, stage {job.stage}: a key must be unique there"
                    )
                seen.add(name)

    def _last_attempt(self, job: Job) -> tuple[int, Trial | None]:
        """Return the newest trial of a job and its attempt; (-1, None) when there is none."""
        last: Trial | None = None
        for attempt in range(MAX_ATTEMPTS):
            name = trial_id(claim=self._claim, job=job, attempt=attempt, seed=self._desk.seed)
            trial = self._desk.journal.trials.get(name)
            if trial is None:
                return attempt - 1, last
            last = trial
        raise ConfigError(f"{self._claim}: {MAX_ATTEMPTS} attempts at one trial are enough")

    def _held(self, group: Group) -> list[Trial] | None:
        """Return the group's finished trials, or None when it has to be asked."""
        trials = [self._last_attempt(job)[1] for job in group]
        held = [trial for trial in trials if trial is not None]
        if len(held) < len(group) or len({trial.epoch for trial in held}) > 1:
            return None
        now = self._desk.epoch()
        unmeasured = any(trial.ok is None and trial.epoch != now for trial in held)
        return None if unmeasured else held

    async def _ask_pending(
        self,
        groups: Sequence[Group],
        found: list[list[Trial] | None],
        pending: list[int],
        concurrency: int,
    ) -> None:
        jobs = [job for index in pending for job in groups[index]]
        self._desk.meter.begin(self._claim, len(jobs), sum(job.probe.cost_tokens for job in jobs))
        queue = iter(pending)
        refused: list[TrafficRefused] = []
        try:
            if self._desk.breaker.is_open:  # one probe alone shows whether the server is back
                await self._work(groups, found, iter([next(queue)]), refused)
                self._desk.breaker.check()
            async with anyio.create_task_group() as tasks:
                for _ in range(min(concurrency, len(pending))):
                    tasks.start_soon(self._work, groups, found, queue, refused)
        finally:
            self._desk.meter.end()
        if refused:
            raise refused[0]

    async def _work(
        self,
        groups: Sequence[Group],
        found: list[list[Trial] | None],
        queue: Iterator[int],
        refused: list[TrafficRefused],
    ) -> None:
        for index in queue:
            if refused:
                return
            try:
                self._desk.check_time()
                found[index] = [await self._ask_one(job) for job in groups[index]]
            except TrafficRefused as refusal:
                # What others have in flight may end: a cap of ours must not abort requests.
                refused.append(refusal)
                return
            self._desk.breaker.check()

    async def _ask_one(self, job: Job) -> Trial:
        attempt = self._last_attempt(job)[0] + 1
        ask = Ask(self._desk.client)
        before = self._desk.epoch()
        result: ProbeResult | None = None
        error = ""
        try:
            result = await job.probe.script(ask)
        except EndpointError as trouble:
            error = excerpt(str(trouble), 1_000)
        if not error and self._desk.epoch() != before:
            result, error = None, "the server restarted or changed its version during this trial"
        trial = self._trial(job, ask, attempt=attempt, epoch=before, result=result, error=error)
        self._desk.journal.append(trial)
        self._desk.breaker.record(error)
        self._desk.meter.advance(job.probe.cost_tokens)
        if trial.id == self._desk.stop_after:
            raise NotApplicable("the replay ends here")
        return trial

    def _trial(
        self,
        job: Job,
        ask: Ask,
        *,
        attempt: int,
        epoch: int,
        result: ProbeResult | None,
        error: str,
    ) -> Trial:
        probe = job.probe
        measured: dict[str, Any] = {}
        if result is not None:
            measured = {
                "score": result.score,
                "ok": result.ok,
                "value": result.value,
                "lost": result.lost,
                "paths": tuple(result.paths),
                "details": dict(result.details),
            }
        return Trial(
            id=trial_id(claim=self._claim, job=job, attempt=attempt, seed=self._desk.seed),
            claim=self._claim,
            suite=self._suite,
            probe=probe.family,
            arm=job.arm,
            stage=job.stage,
            key=probe.key,
            index=attempt,
            seed=self._desk.seed,
            epoch=epoch,
            cluster=probe.cluster,
            cell={**probe.cell, **(result.cell if result else {})},
            recipe=dict(probe.recipe),
            expected=probe.expected,
            exchanges=tuple(self._redacted(exchange) for exchange in ask.exchanges),
            error=self._desk.redactor.text(error or (result.error if result else "")),
            **measured,
        )

    def _redacted(self, exchange: Exchange) -> Exchange:
        """A server may repeat the key in its answer; it must not reach the disk by that way."""
        redactor = self._desk.redactor
        return msgspec.structs.replace(
            exchange,
            text=redactor.text(exchange.text),
            reasoning=redactor.text(exchange.reasoning),
            error=redactor.text(exchange.error),
            messages=tuple(redactor.json(message) for message in exchange.messages),
        )


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_leaf(first) if isinstance(first, BaseExceptionGroup) else first
