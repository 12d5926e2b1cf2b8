"""Suites that an inner pytest runs."""

import pytest

from tests.fidelity.plugin.inner import CONFTEST, FAKE


@pytest.fixture
def suites(pytester, monkeypatch):
    """Return a function that writes suites and a deployment beside them."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "GITHUB_STEP_SUMMARY", "CI"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(fake_deployment=FAKE)
    pytester.syspathinsert()

    def write(opening="return FakeDeployment()", **files):
        pytester.makeconftest(CONFTEST.format(body=opening))
        return pytester.makepyfile(**{f"test_{name}": body for name, body in files.items()})

    return write
