"""pytest plugin of the harness: hooks only; what they do lies in `fidelity.runs.pytest_run`.

It is installed for every pytest run of an environment, so it stays out of the way: without a
claim among the collected tests it writes, prints and imports nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fidelity.config import options

if TYPE_CHECKING:
    from collections.abc import Generator

    from fidelity.measure import Measure
    from fidelity.runs.pytest_run import PytestRun

BAD_USAGE = 2
_STATUS: dict[str, tuple[str, str, Any]] = {
    "pass": ("passed", ".", "PASSED"),
    "fail": ("failed", "F", "FAILED"),
    "inconclusive": ("inconclusive", "I", ("INCONCLUSIVE", {"yellow": True})),
    "error": ("error", "E", ("ERROR", {"red": True})),
    "not_applicable": ("skipped", "s", "SKIPPED"),
}
_RUN = pytest.StashKey["PytestRun"]()
_FIRST = "fidelity_first"
_SUITES = Path(__file__).resolve().parents[1] / "suites"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the one table."""
    group = parser.getgroup("fidelity", "fidelity of a served model (only with claims collected)")
    options.add_pytest_options(group)
    group.addoption(
        "--fidelity-plan",
        action="store_true",
        dest="fidelity_plan",
        help="say what the run would send, and send nothing",
    )
    group.addoption(
        "--fidelity-note-patches",
        action="store_true",
        dest="fidelity_note_patches",
        help=argparse.SUPPRESS,
    )
    group.addoption("--fidelity-replay", dest="fidelity_replay", help=argparse.SUPPRESS)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hook that opens a deployment."""
    from fidelity import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of claims; note the figures of microtests where that is asked for."""
    config.addinivalue_line(
        "markers",
        "fidelity_requires(name): the claim is part of a run only where the run has it (golden)",
    )
    config.addinivalue_line(
        "markers", f"{_FIRST}: the claim is asked first, while the server is young"
    )
    if config.getoption("fidelity_note_patches"):
        from fidelity.microtests.seen import NoteHooks

        config.pluginmanager.register(NoteHooks(), "fidelity-note-patches")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the claims that must come first to the front; all others keep their order."""
    items.sort(key=lambda item: item.get_closest_marker(_FIRST) is None)


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """Return the claim being measured; see `fidelity.measure.Measure`."""
    return request.config.stash[_RUN].measure_for(request.node)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect the microtests of `suites/patches` only when that path is named."""
    patches = _SUITES / "patches"
    if collection_path != patches:
        return None
    named = [_path_of(config, argument) for argument in config.args]
    return None if any(patches in (path, *path.parents) for path in named) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Start to care once a claim was collected; a run that was meant and has none is refused."""
    config = session.config
    if config.option.collectonly:
        return
    claims = [item for item in session.items if _asks_for_measure(item)]
    if claims:
        _refuse_xdist(config)
        from fidelity.runs.pytest_run import PytestRun

        run = PytestRun(session, claims)
        config.stash[_RUN] = run
        config.pluginmanager.register(RunHooks(run), "fidelity-run")
    elif not session.items and not session.testsfailed and _was_meant(config):
        pytest.exit("fidelity: no claim was collected, nothing was measured", BAD_USAGE)


class RunHooks:
    """The hooks of a session in which claims were collected."""

    def __init__(self, run: PytestRun) -> None:
        self._run = run

    def pytest_report_collectionfinish(self) -> str:
        """Name the deployment before anything is sent to it."""
        return self._run.opening_line

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Open journal and deployment before the first test."""
        if not session.testsfailed or session.config.option.continue_on_collection_errors:
            self._run.begin()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let the report of a claim say its outcome."""
        report = yield
        self._run.shape(item, call, report)
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        """Name the outcomes that pytest has no word for."""
        outcome = getattr(report, "fidelity_outcome", None)
        if outcome is None:
            return None
        category, letter, word = _STATUS[outcome]
        return category, self._run.status_line(report.nodeid, outcome) or letter, word

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember that the run was stopped: what there is will be kept and marked."""
        self._run.stopped_by(excinfo.value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End the run and set the exit code by its verdict."""
        session.exitstatus = self._run.finish(int(exitstatus))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the verdict."""
        lines = self._run.closing_lines()
        if lines:
            terminalreporter.section("fidelity")
        for line in lines:
            terminalreporter.write_line(line)


def _path_of(config: pytest.Config, argument: str) -> Path:
    return (config.invocation_params.dir / argument.partition("::")[0]).resolve()


def _asks_for_measure(item: pytest.Item) -> bool:
    """True for tests that ask for this plugin's fixture, not for another one of that name."""
    information = getattr(item, "_fixtureinfo", None)
    definitions = information.name2fixturedefs.get("measure", ()) if information else ()
    return any(definition.func.__module__ == __name__ for definition in definitions[-1:])


def _was_meant(config: pytest.Config) -> bool:
    """True when this run was meant to measure: by an option, or by the path of our suites."""
    if config.getoption("fidelity_note_patches"):
        return False  # somebody's microtests: pytest's own code says that there are none
    named = [_path_of(config, argument) for argument in config.args]
    inside = any(_SUITES in (path, *path.parents) for path in named)
    return inside or bool(options.pytest_flags(config))


def _refuse_xdist(config: pytest.Config) -> None:
    workers = getattr(config.option, "numprocesses", None)
    if workers or hasattr(config, "workerinput"):
        pytest.exit(
            "fidelity: a run has one journal and one process, so xdist cannot split it; leave -n"
            " away: requests run concurrently anyway (--fidelity-concurrency)",
            BAD_USAGE,
        )
