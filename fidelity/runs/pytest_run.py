"""Between pytest and a run: which items are claims, and what an ending means.

Imported only when a claim was collected, so that other people's test runs pay nothing.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fidelity.config.options import pytest_flags
from fidelity.config.settings import Settings, resolve
from fidelity.deployment.beside import Beside
from fidelity.errors import (
    CapSpent,
    ConfigError,
    FidelityError,
    HarnessError,
    Inconclusive,
    JournalError,
    NotApplicable,
    Violation,
)
from fidelity.measure import Measure
from fidelity.runs.junit import write_junit
from fidelity.runs.plan import (
    PREFILL_TOKENS_PER_S,
    PlannedClaim,
    PlannedDeployment,
    PlanningAsker,
    plan_lines,
)
from fidelity.runs.progress import ProgressMeter, copy_of
from fidelity.runs.run import Finished, Order, Run
from fidelity.runs.summary import COLUMNS, summary_lines, without_run_folder
from fidelity.runs.termination import Termination
from fidelity.verdicts.claims import claim_of, left_out, refuse_double_ids, replayed_items
from fidelity.verdicts.decisions import Claim
from fidelity.verdicts.verdict import EXIT_INTERRUPTED
from fidelity.words import Outcome

BAD_USAGE = 2
_ORDINARY_ENDS = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
OUTCOME = "fidelity_outcome"
"""Attribute of a pytest report that holds the outcome of its claim."""


def _never_opened(settings: Settings, folder: Path) -> Any:
    from fidelity.deployment.deployment import open_deployment

    return open_deployment(settings, run_dir=folder)


async def _open_golden(settings: Settings, folder: Path) -> Any:
    from fidelity.deployment.deployment import open_deployment

    logs = folder / "golden"
    if settings.target.launch:
        logs.mkdir(exist_ok=True)
    return await open_deployment(settings, run_dir=logs)


def _left_out_words(left_out: Mapping[str, str]) -> str:
    """Say which claims are no part of a run, grouped by what they need."""
    needs = Counter(left_out.values())
    return "; ".join(
        f"{count} {'claim needs' if count == 1 else 'claims need'} {need},"
        f" and {'is' if count == 1 else 'are'} no part of this run"
        for need, count in needs.items()
    )


class PytestRun:
    """A pytest session in which claims were collected."""

    def __init__(self, session: pytest.Session, items: Sequence[pytest.Item]) -> None:
        """Resolve the settings; nothing is sent or written yet.

        Raises:
            pytest.exit.Exception: a setting is wrong, or two claims share one id.
        """
        config = session.config
        self._config = config
        self._replayed = str(config.getoption("fidelity_replay") or "")
        self._measures: dict[str, Measure] = {}
        self._run: Run | None = None
        self._meter: ProgressMeter | None = None
        self._planned: list[PlannedClaim] = []
        self.planning = bool(config.getoption("fidelity_plan"))
        self._stopped_by: BaseException | None = None
        self._other_failures = 0
        self._termination = Termination()
        self.finished: Finished | None = None
        self.report_trouble = ""
        try:
            self.settings = resolve(pytest_flags(config))
            if self._replayed:
                items = session.items[:] = replayed_items(items, self.settings.run_dir)
            items, self.left_out = self._part_of_run(session, items)
            self._items = {item.nodeid: claim_of(item) for item in items}
            refuse_double_ids(self._items)
        except (ConfigError, JournalError) as error:
            pytest.exit(f"fidelity: {error}", returncode=BAD_USAGE)
        self._only_claims = len(items) == len(session.items)
        self.command = self.settings.redactor.arguments(_command(config))

    def _part_of_run(
        self, session: pytest.Session, items: Sequence[pytest.Item]
    ) -> tuple[list[pytest.Item], dict[str, str]]:
        """Deselect the claims that need what this run does not have; return the rest, and those.

        Raises:
            ConfigError: none is left.
        """
        has = {
            "golden": self.settings.beside is not None,
            "encoding": self.settings.target.encoding is not None,
            "router": bool(self.settings.target.roles),
        }
        missing = left_out(items, [name for name, present in has.items() if present])
        gone = [item for item in items if claim_of(item).id in missing]
        kept = [item for item in items if claim_of(item).id not in missing]
        if gone:
            if not kept:
                raise ConfigError(f"nothing to measure: {_left_out_words(missing)}")
            session.items[:] = [item for item in session.items if item not in gone]
            session.config.hook.pytest_deselected(items=gone)
        return kept, missing

    @property
    def opening_line(self) -> str:
        """Say what is measured; what `fidelity run` said already is not repeated."""
        called = self._config.pluginmanager.has_plugin("fidelity-command")
        lines = [] if called else [f"fidelity: {self.settings.measured}"]
        if self.left_out:
            lines.append(f"fidelity: {_left_out_words(self.left_out)}")
        return "\n".join(lines)

    def status_line(self, nodeid: str, outcome: Outcome) -> str:
        """Return a line for one claim in place of pytest's letter; "" leaves the letter."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        claim = self._items.get(nodeid)
        if claim is None or not self._only_claims or terminal is None:
            return ""
        if self.planning or self._config.get_verbosity() != 0:
            return ""
        return f"{outcome.replace('_', ' '):<15}{claim.id}\n"

    @property
    def folder(self) -> Path | None:
        """The run folder, None before the run began."""
        return self._run.folder if self._run is not None else None

    def begin(self) -> None:
        """Open journal and deployment.

        Raises:
            pytest.exit.Exception: the run folder cannot be used.
        """
        if self.planning:
            return
        opener = self._opener
        self._meter = self._new_meter()
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and self._only_claims:
            terminal.showfspath = False  # each claim gets a line of its own
        order = Order(
            settings=self.settings,
            claims=tuple(self._items.values()),
            command=self.command,
            opener=opener,
            golden_opener=_open_golden,
            left_out=self.left_out,
            meter=self._meter,
            root=self._config.invocation_params.dir,
            stop_after=self._replayed,
        )
        self._termination.watch()
        try:
            self._run = Run(order)
        except JournalError as error:
            self._meter.close()
            pytest.exit(f"fidelity: {error}", returncode=BAD_USAGE)

    async def _opener(self, settings: Settings, folder: Path) -> Any:
        hook = self._config.hook.pytest_fidelity_open_deployment
        opening = hook(settings=settings, run_dir=folder) or _never_opened(settings, folder)
        return await opening

    def _new_meter(self) -> ProgressMeter:
        stream = copy_of(2)
        live = stream.isatty() and not (self.settings.no_color or self.settings.ci)
        live = live and self.settings.environ.get("TERM") != "dumb"
        return ProgressMeter(
            stream,
            live=live,
            claims=len(self._items),
            limit_s=self.settings.max_time_s,
            make_room=self._end_pytests_line,
        )

    def _end_pytests_line(self) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if terminal is None:
            return
        if capture is None:
            terminal.ensure_newline()
            return
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()

    def measure_for(self, item: pytest.Item) -> Measure:
        """Return the fixture of one claim.

        Raises:
            HarnessError: the deployment could not be opened.
        """
        claim = self._items[item.nodeid]
        if self.planning:
            measure = self._planning_measure(claim)
        elif self._run is None or self._meter is None:
            raise HarnessError("the run has not begun: pytest's runtestloop was replaced")
        else:
            self._meter.claim_started()
            measure = self._run.measure_for(claim)
        self._measures[item.nodeid] = measure
        return measure

    def _planning_measure(self, claim: Claim) -> Measure:
        target = self.settings.target
        caller = self._config.pluginmanager.get_plugin("fidelity-command")
        cost = PlannedClaim(claim=claim.id)
        self._planned.append(cost)
        deployment: Any = PlannedDeployment(
            name=target.name,
            base_url=target.base_url or "",
            model=self.settings.model or target.model or "",
            expects=target.expects,
            capabilities=caller.capabilities if caller is not None else None,
        )
        return Measure(
            claim,
            asker=PlanningAsker(cost, suite=claim.suite, seed=self.settings.seed),
            journal=None,
            deployment=deployment,
            settings=self.settings,
            planning=True,
            beside=self._planned_golden(),
        )

    def _planned_golden(self) -> Beside:
        golden = self.settings.beside
        if golden is None:
            return Beside()
        deployment: Any = PlannedDeployment(
            name=golden.target.name,
            base_url=golden.target.base_url or "",
            model=golden.model or "",
            expects=golden.target.expects,
        )
        return Beside(deployment=deployment)

    def shape(
        self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
    ) -> None:
        """Give a report its outcome, and write the finding that the test itself did not."""
        claim = self._items.get(item.nodeid)
        if claim is None:  # an ordinary test beside claims
            self._other_failures += report.failed
            return
        raised = call.excinfo.value if call.excinfo is not None else None
        if report.when == "teardown" and self._meter is not None:
            self._meter.claim_ended()
        if raised is None and report.when != "call":
            return
        measure = self._measures.get(item.nodeid)
        if self.planning:
            report.outcome, report.longrepr = "passed", None
            self._note_needs(claim, measure)
            return
        outcome, reason = _ending(raised, measure)
        self._record(claim, measure, outcome, reason, raised)
        _show(item, report, outcome, reason, raised)

    def _note_needs(self, claim: Claim, measure: Measure | None) -> None:
        for cost in self._planned:
            if cost.claim == claim.id and measure is not None:
                cost.needs = measure.needed

    def _record(
        self,
        claim: Claim,
        measure: Measure | None,
        outcome: Outcome,
        reason: str,
        raised: BaseException | None,
    ) -> None:
        decided = measure.finding if measure is not None else None
        if self._run is None or (decided is not None and decided.outcome is outcome):
            return
        self._run.record_without_decision(
            claim, outcome, reason, raised.blame if isinstance(raised, Violation) else None
        )

    def stopped_by(self, stop: BaseException) -> None:
        """Note that the user, or a plugin, stopped the session."""
        # pytest's own stop (a broken file, --stepwise) is an early end and no interruption
        if not isinstance(stop, pytest.Session.Interrupted):
            self._stopped_by = stop

    def finish(self, exitstatus: int) -> int:
        """End the run, write its files and return the exit code of the whole session."""
        self._termination.hold()
        try:
            return self._finish(exitstatus)
        except (JournalError, OSError) as error:
            self.report_trouble = f"the run could not be written to its end: {error}"
            return 2
        finally:
            self._termination.restore()

    def _finish(self, exitstatus: int) -> int:
        if self._meter is not None:
            self._meter.close()
        caller = self._config.pluginmanager.get_plugin("fidelity-command")
        if caller is not None:
            caller.planned = tuple(self._planned)
        if self._run is None:
            by_hand = isinstance(self._stopped_by, KeyboardInterrupt)
            return EXIT_INTERRUPTED if by_hand else exitstatus
        if self._replayed:
            self._run.finish(interrupted=True)
            return exitstatus
        self.finished = self._run.finish(interrupted=self._stopped_by is not None)
        self._write_files(self._run.folder, self.finished)
        code = self.finished.judgement.exit_code
        if code != EXIT_INTERRUPTED and exitstatus not in _ORDINARY_ENDS:
            return exitstatus
        return 1 if self._other_failures and code != EXIT_INTERRUPTED else code

    def _write_files(self, folder: Path, finished: Finished) -> None:
        try:
            write_junit(
                folder / "junit.xml",
                finished.findings,
                not_run=finished.not_run,
                duration_s=finished.duration_s,
            )
            import reports

            reports.build(folder)
            self._append_step_summary(folder / "summary.md")
        except Exception as error:  # noqa: BLE001 - a broken report must not hide a verdict
            self.report_trouble = (
                f"the report could not be written ({type(error).__name__}: {error}); the journal"
                f" is whole: fidelity report {folder}"
            )

    def _append_step_summary(self, summary: Path) -> None:
        if self.settings.step_summary is not None and summary.exists():
            with self.settings.step_summary.open("a", encoding="utf-8") as stream:
                stream.write(summary.read_text(encoding="utf-8"))

    def closing_lines(self) -> list[str]:
        """Return what the terminal shows at the end."""
        if self._replayed:
            return []
        if self.planning:
            return plan_lines(self._planned, tokens_per_s=PREFILL_TOKENS_PER_S)
        if self.finished is None or self._run is None:
            return [self.report_trouble] if self.report_trouble else []
        lines = summary_lines(
            self.finished.judgement,
            self.finished.findings,
            holm=self.finished.holm,
            folder=self._run.folder,
            command=self.command,
            patches=self.finished.patches,
            width=self._columns(),
        )
        return [*lines, self.report_trouble] if self.report_trouble else lines

    def _columns(self) -> int:
        writer = self._config.get_terminal_writer()
        return min(COLUMNS, writer.fullwidth) if writer.hasmarkup else COLUMNS


def _command(config: pytest.Config) -> tuple[str, ...]:
    """Return what repeats this run: the arguments of `fidelity run`, or of pytest."""
    caller = config.pluginmanager.get_plugin("fidelity-command")
    if caller is not None:
        return without_run_folder(caller.command)
    words = [os.fspath(word) for word in config.invocation_params.args]
    return without_run_folder(("pytest", *words))


def _ending(raised: BaseException | None, measure: Measure | None) -> tuple[Outcome, str]:
    """Map how a test ended to an outcome; anything unknown is trouble of the harness."""
    if raised is None:
        decided = measure.finding if measure is not None else None
        if decided is None:
            return Outcome.ERROR, "the test ended without a decision: it claims nothing"
        return decided.outcome, decided.reason
    match raised:
        case Violation():
            outcome = Outcome.FAIL
        case Inconclusive() | CapSpent():
            outcome = Outcome.INCONCLUSIVE
        case NotApplicable():
            outcome = Outcome.NOT_APPLICABLE
        case pytest.skip.Exception():
            return Outcome.NOT_APPLICABLE, str(raised.msg or "skipped")
        case FidelityError():
            outcome = Outcome.ERROR
        case _:
            return Outcome.ERROR, f"the suite broke: {type(raised).__name__}: {raised}"
    return outcome, str(raised)


def _show(
    item: pytest.Item,
    report: pytest.TestReport,
    outcome: Outcome,
    reason: str,
    raised: BaseException | None,
) -> None:
    """Let pytest's report say the outcome; a sentence stands where a traceback would not help."""
    setattr(report, OUTCOME, outcome)
    if outcome is Outcome.PASS:
        return
    if outcome is Outcome.NOT_APPLICABLE:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, reason)
        return
    report.outcome = "failed"
    if raised is None or isinstance(raised, FidelityError):
        report.longrepr = f"{outcome}: {reason}"
