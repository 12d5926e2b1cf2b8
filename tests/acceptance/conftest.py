"""Real runs of the product, minutes each: `make acceptance`; plain pytest leaves them out."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "fidelity"):  # the proxies stand beside the harness's own tests
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from product import RUNS  # noqa: E402
from proxies import UpstreamServer  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where this folder is named on the command line."""
    parser.addoption(
        "--each-fault",
        action="store_true",
        help="run every fault made for twins on a server of its own, not in groups",
    )


@pytest.fixture(scope="session")
def engine():
    """One healthy embedded engine, as a server that somebody else runs."""
    with UpstreamServer() as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not RUNS:
        return
    terminalreporter.section("runs of the product")
    for ran in RUNS:
        counts = ", ".join(f"{count} {name}" for name, count in ran.outcomes().items())
        terminalreporter.write_line(
            f"{ran.seconds:6.0f} s  {ran.peak_bytes / 2**20:5.0f} MiB  exit {ran.code:>3} "
            f" {ran.name}: {counts}"
        )
