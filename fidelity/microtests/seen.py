"""Reports of `assert_patch`, as properties of the tests that made them: JUnit then holds them.

Whoever runs a microtest of a stranger (`fidelity gate`) reads the figures there.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from fidelity.microtests.results import PatchReport

PROPERTY = "fidelity.patch"
_reports: ContextVar[list[PatchReport] | None] = ContextVar("reports", default=None)


def note(report: PatchReport) -> None:
    """Keep a report for the test that is running; without `NoteHooks` nothing happens."""
    kept = _reports.get()
    if kept is not None:
        kept.append(report)


class NoteHooks:
    """A pytest plugin that writes each test's reports into its properties."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Collect while the test runs, also where it fails."""
        import msgspec

        token = _reports.set([])
        try:
            return (yield)
        finally:
            for report in _reports.get() or []:
                item.user_properties.append((PROPERTY, msgspec.json.encode(report).decode()))
            _reports.reset(token)
