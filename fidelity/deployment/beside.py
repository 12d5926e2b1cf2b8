"""The deployment that a run compares with, beside the one that it measures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fidelity.errors import HarnessError

if TYPE_CHECKING:
    from fidelity.deployment.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The golden deployment of a run: open, failed, or (neither) not asked for."""

    deployment: "Deployment | None" = None
    failure: HarnessError | None = None
