"""Hooks that the plugin adds to pytest."""

from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fidelity.config.settings import Settings
    from fidelity.deployment.deployment import Deployment


@pytest.hookspec(firstresult=True)
def pytest_fidelity_open_deployment(
    settings: "Settings", run_dir: Path
) -> "Awaitable[Deployment] | None":
    """Return an awaitable that opens the deployment to measure; None leaves it to the harness.

    Awaited once, in the run's event loop, before the first claim. Implement it in a conftest to
    measure something that does not speak HTTP.
    """
