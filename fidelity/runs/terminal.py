"""The terminal of a pytest session in which claims were collected."""

from typing import TYPE_CHECKING

import pytest

from fidelity.runs.progress import ProgressMeter, copy_of
from fidelity.runs.summary import COLUMNS

if TYPE_CHECKING:
    from fidelity.config.settings import Settings


class Terminal:
    """What the harness writes between pytest's own lines."""

    def __init__(self, config: pytest.Config) -> None:
        """Ask nothing yet: pytest's reporter may be replaced until the tests run."""
        self._config = config

    @property
    def present(self) -> bool:
        """False when pytest reports to nobody."""
        return self._reporter is not None

    @property
    def _reporter(self) -> pytest.TerminalReporter | None:
        return self._config.pluginmanager.get_plugin("terminalreporter")

    @property
    def quiet_or_verbose(self) -> bool:
        """True when the user asked for pytest's own short or long lines."""
        return self._config.get_verbosity() != 0

    @property
    def columns(self) -> int:
        """Width for text; that of the terminal when it is one, and narrower."""
        writer = self._config.get_terminal_writer()
        return min(COLUMNS, writer.fullwidth) if writer.hasmarkup else COLUMNS

    def leave_paths_away(self) -> None:
        """Let no line begin with a file's path: each claim gets a line of its own."""
        if self._reporter is not None:
            self._reporter.showfspath = False

    def meter(self, settings: "Settings", *, claims: int) -> ProgressMeter:
        """Return a meter on this terminal: live where it may draw, lines elsewhere."""
        stream = copy_of(2)
        live = stream.isatty() and not (settings.no_color or settings.ci)
        live = live and settings.environ.get("TERM") != "dumb"
        return ProgressMeter(
            stream,
            live=live,
            claims=claims,
            limit_s=settings.max_time_s,
            make_room=self._end_pytests_line,
        )

    def _end_pytests_line(self) -> None:
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if self._reporter is None:
            return
        if capture is None:
            self._reporter.ensure_newline()
            return
        with capture.global_and_fixture_disabled():
            self._reporter.ensure_newline()
