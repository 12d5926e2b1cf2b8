"""Between pytest and a run: which items are claims, how the session begins and ends.

Imported only when a claim was collected, so that other people's test runs pay nothing.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fidelity.config.options import pytest_flags
from fidelity.config.settings import Settings, resolve
from fidelity.config.sources import suites_of_the_product
from fidelity.errors import ConfigError, HarnessError, JournalError, Violation
from fidelity.measure import Measure
from fidelity.records import Finding
from fidelity.runs.ending import ending_of, show
from fidelity.runs.files import write_files
from fidelity.runs.planning import Planning
from fidelity.runs.progress import ProgressMeter
from fidelity.runs.run import Finished, Order, Run
from fidelity.runs.summary import summary_lines, without_run_folder
from fidelity.runs.terminal import Terminal
from fidelity.runs.termination import Termination
from fidelity.verdicts.claims import (
    claim_of,
    left_out_words,
    part_of_run,
    refuse_double_ids,
    refuse_unmatched,
    replayed_items,
)
from fidelity.verdicts.decisions import Claim
from fidelity.verdicts.verdict import EXIT_INTERRUPTED
from fidelity.words import Outcome

BAD_USAGE = 2
_ORDINARY_ENDS = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}


def _never_opened(settings: Settings, folder: Path) -> Any:
    from fidelity.deployment.deployment import open_deployment

    return open_deployment(settings, run_dir=folder)


async def _open_golden(settings: Settings, folder: Path) -> Any:
    from fidelity.deployment.deployment import open_deployment

    logs = folder / "golden"
    if settings.target.launch:
        logs.mkdir(exist_ok=True)
    return await open_deployment(settings, run_dir=logs)


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
        self.planning = bool(config.getoption("fidelity_plan"))
        self._stopped_by: BaseException | None = None
        self._other_failures = 0
        self._termination = Termination()
        self._terminal = Terminal(config)
        self.finished: Finished | None = None
        self.report_trouble = ""
        try:
            self.settings = resolve(pytest_flags(config))
            if self._replayed:
                items = session.items[:] = replayed_items(items, self.settings.run_dir)
            items = self._keep_part_of_run(session, items)
            self._items = {item.nodeid: claim_of(item) for item in items}
            refuse_double_ids(self._items)
            refuse_unmatched(
                self.settings.target.required,
                [*(claim.id for claim in self._items.values()), *self.left_out],
                suites=suites_of_the_product() or (),
                whole=not self._narrowed,
            )
        except (ConfigError, JournalError) as error:
            pytest.exit(f"fidelity: {error}", returncode=BAD_USAGE)
        self._planning = Planning(self.settings)
        self._only_claims = len(items) == len(session.items)
        self.command = self.settings.redactor.arguments(_command(config))

    @property
    def _narrowed(self) -> bool:
        """True when some claims of the collected files were left out by the command line."""
        option = self._config.option
        chosen = (option.keyword, option.markexpr, getattr(option, "deselect", None))
        named = any("::" in argument for argument in self._config.args)
        return bool(self._replayed) or any(chosen) or named

    def _keep_part_of_run(
        self, session: pytest.Session, items: Sequence[pytest.Item]
    ) -> list[pytest.Item]:
        has = {
            "golden": self.settings.beside is not None,
            "encoding": self.settings.target.encoding is not None,
            "router": bool(self.settings.target.roles),
        }
        kept, self.left_out = part_of_run(items, [name for name, there in has.items() if there])
        gone = [item for item in items if item not in kept]
        if gone:
            session.items[:] = [item for item in session.items if item not in gone]
            session.config.hook.pytest_deselected(items=gone)
        return kept

    @property
    def opening_line(self) -> str:
        """Say what is measured; what `fidelity run` said already is not repeated."""
        called = self._config.pluginmanager.has_plugin("fidelity-command")
        lines = [] if called else [f"fidelity: {self.settings.measured}"]
        if self.left_out:
            lines.append(f"fidelity: {left_out_words(self.left_out)}")
        return "\n".join(lines)

    def status_line(self, nodeid: str, outcome: Outcome) -> str:
        """Return a line for one claim in place of pytest's letter; "" leaves the letter."""
        claim = self._items.get(nodeid)
        if claim is None or not self._only_claims or not self._terminal.present:
            return ""
        if self.planning or self._terminal.quiet_or_verbose:
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
        self._meter = self._terminal.meter(self.settings, claims=len(self._items))
        if self._only_claims:
            self._terminal.leave_paths_away()
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

    def measure_for(self, item: pytest.Item) -> Measure:
        """Return the fixture of one claim.

        Raises:
            HarnessError: the deployment could not be opened.
        """
        claim = self._items[item.nodeid]
        if self.planning:
            caller = self._config.pluginmanager.get_plugin("fidelity-command")
            measure = self._planning.measure_for(
                claim, capabilities=caller.capabilities if caller is not None else None
            )
        elif self._run is None or self._meter is None:
            raise HarnessError("the run has not begun: pytest's runtestloop was replaced")
        else:
            self._meter.claim_started()
            measure = self._run.measure_for(claim)
        self._measures[item.nodeid] = measure
        return measure

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
            self._planning.note_needs(claim, measure)
            return
        decided = measure.finding if measure is not None else None
        outcome, reason = ending_of(raised, decided)
        self._record(claim, decided, outcome, reason, raised)
        show(item, report, outcome, reason, raised)

    def _record(
        self,
        claim: Claim,
        decided: Finding | None,
        outcome: Outcome,
        reason: str,
        raised: BaseException | None,
    ) -> None:
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
            caller.planned = self._planning.claims
        if self._run is None:
            by_hand = isinstance(self._stopped_by, KeyboardInterrupt)
            return EXIT_INTERRUPTED if by_hand else exitstatus
        if self._replayed:
            self._run.finish(interrupted=True)
            return exitstatus
        self.finished = self._run.finish(interrupted=self._stopped_by is not None)
        self.report_trouble = write_files(
            self._run.folder, self.finished, step_summary=self.settings.step_summary
        )
        code = self.finished.judgement.exit_code
        if code != EXIT_INTERRUPTED and exitstatus not in _ORDINARY_ENDS:
            return exitstatus
        return 1 if self._other_failures and code != EXIT_INTERRUPTED else code

    def closing_lines(self) -> list[str]:
        """Return what the terminal shows at the end."""
        if self._replayed:
            return []
        if self.planning:
            return self._planning.lines()
        if self.finished is None or self._run is None:
            return [self.report_trouble] if self.report_trouble else []
        lines = summary_lines(
            self.finished.judgement,
            self.finished.findings,
            holm=self.finished.holm,
            folder=self._run.folder,
            command=self.command,
            patches=self.finished.patches,
            width=self._terminal.columns,
        )
        return [*lines, self.report_trouble] if self.report_trouble else lines


def _command(config: pytest.Config) -> tuple[str, ...]:
    """Return what repeats this run: the arguments of `fidelity run`, or of pytest."""
    caller = config.pluginmanager.get_plugin("fidelity-command")
    if caller is not None:
        return without_run_folder(caller.command)
    words = [os.fspath(word) for word in config.invocation_params.args]
    return without_run_folder(("pytest", *words))
