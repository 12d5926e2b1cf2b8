"""The session of `fidelity plan`: each claim measures a deployment that is never reached."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fidelity.deployment.beside import Beside
from fidelity.measure import Measure
from fidelity.runs.plan import (
    PREFILL_TOKENS_PER_S,
    PlannedClaim,
    PlannedDeployment,
    PlanningAsker,
    plan_lines,
)
from fidelity.verdicts.decisions import Claim

if TYPE_CHECKING:
    from fidelity.config.settings import Settings
    from fidelity.records import CapabilityState


class Planning:
    """Collects what the claims of a session would cost."""

    def __init__(self, settings: "Settings") -> None:
        """Begin without a claim."""
        self._settings = settings
        self._claims: list[PlannedClaim] = []

    @property
    def claims(self) -> tuple[PlannedClaim, ...]:
        """Cost of each claim so far."""
        return tuple(self._claims)

    def measure_for(
        self, claim: Claim, *, capabilities: "Mapping[str, CapabilityState] | None"
    ) -> Measure:
        """Return the fixture of one claim; `capabilities` of a server that was explored."""
        target = self._settings.target
        cost = PlannedClaim(claim=claim.id)
        self._claims.append(cost)
        deployment: Any = PlannedDeployment(
            name=target.name,
            base_url=target.base_url or "",
            model=self._settings.model or target.model or "",
            expects=target.expects,
            capabilities=capabilities,
        )
        return Measure(
            claim,
            asker=PlanningAsker(cost, suite=claim.suite, seed=self._settings.seed),
            journal=None,
            deployment=deployment,
            settings=self._settings,
            planning=True,
            beside=self._golden(),
        )

    def _golden(self) -> Beside:
        golden = self._settings.beside
        if golden is None:
            return Beside()
        deployment: Any = PlannedDeployment(
            name=golden.target.name,
            base_url=golden.target.base_url or "",
            model=golden.model or "",
            expects=golden.target.expects,
        )
        return Beside(deployment=deployment)

    def note_needs(self, claim: Claim, measure: Measure | None) -> None:
        """Note which capabilities a claim required; None when it never came to measure."""
        for cost in self._claims:
            if cost.claim == claim.id and measure is not None:
                cost.needs = measure.needed

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        return plan_lines(self._claims, tokens_per_s=PREFILL_TOKENS_PER_S)
