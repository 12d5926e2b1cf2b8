"""What a run would send, without sending it: the same tests run against a made-up deployment.

Each ask is counted and answered by trials that are all right, so that a test goes on to its
controls and its decision; second stages, which only misses open, are not in a plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fidelity.errors import TrafficRefused
from fidelity.records import CapabilityState, Trial
from fidelity.runs.asking import Group, trial_id
from fidelity.words import Traffic

PREFILL_TOKENS_PER_S = 1_000.0
"""Assumed speed where none was measured; `fidelity doctor` measures it."""


@dataclass(slots=True, kw_only=True)
class PlannedClaim:
    """Cost of one claim."""

    claim: str
    trials: int = 0
    requests: int = 0
    tokens: int = 0
    traffic: set[Traffic] = field(default_factory=set)
    needs: tuple[str, ...] = ()


class PlanningAsker:
    """Stands for `Asker` in a plan: counts, and makes up right answers."""

    def __init__(self, cost: PlannedClaim, *, suite: str, seed: int) -> None:
        self._cost = cost
        self._suite = suite
        self._seed = seed

    def ask(self, groups: Sequence[Group], *, concurrency: int | None = None) -> list[list[Trial]]:
        """Return one right trial per job, having added up what they would cost."""
        del concurrency
        return [[self._trial(job) for job in group] for group in groups]

    def left(self) -> tuple[float | None, int]:
        """Return that nothing bounds a plan."""
        return None, 1

    def _trial(self, job: Any) -> Trial:
        probe = job.probe
        self._cost.trials += 1
        self._cost.requests += probe.cost_requests
        self._cost.tokens += probe.cost_tokens
        self._cost.traffic.add(probe.traffic)
        return Trial(
            id=trial_id(claim=self._cost.claim, job=job, attempt=0, seed=self._seed),
            claim=self._cost.claim,
            suite=self._suite,
            probe=probe.family,
            arm=job.arm,
            stage=job.stage,
            key=probe.key,
            seed=self._seed,
            cluster=probe.cluster,
            cell=dict(probe.cell),
            recipe=dict(probe.recipe),
            expected=probe.expected,
            ok=True,
        )


class _AnyCapability(dict[str, CapabilityState]):
    """A server that could do everything; its limits are unknown."""

    max_model_len: int | None = None
    page_size: int | None = None
    dialect = "openai"

    def __missing__(self, name: str) -> CapabilityState:
        return CapabilityState(name=name, present=True)

    def get(self, name: str, default: Any = None) -> Any:
        del default
        return self[name]


class _NothingIsSent:
    """A client of a plan: whatever is called refuses."""

    def __getattr__(self, name: str) -> NoReturn:
        raise TrafficRefused(f"a plan sends nothing, and this claim called client.{name}")


class PlannedDeployment:
    """A deployment as its description has it, never reached."""

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        model: str,
        expects: Sequence[str],
        capabilities: Mapping[str, CapabilityState] | None = None,
    ) -> None:
        """Describe it; `capabilities` of a server that was explored tell its limits."""
        self.name = name
        self.base_url = base_url
        self.model = model
        self.expects = tuple(expects)
        self.launched = False
        self.launch_command: tuple[str, ...] = ()
        self.server_info: Mapping[str, Any] = {}
        self.roles: Mapping[str, Any] = {}
        self.capabilities = _AnyCapability() if capabilities is None else capabilities
        self.client = _NothingIsSent()


def plan_lines(claims: Sequence[PlannedClaim], *, tokens_per_s: float) -> list[str]:
    """Return the plan as a table of text, with its totals last."""
    width = max([len(claim.claim) for claim in claims] + [len("all claims")])
    lines = [
        f"{'claim':<{width}}  {'trials':>7} {'requests':>9} {'prompt tokens':>14} {'minutes':>8}"
    ]
    total = PlannedClaim(claim="all claims")
    for claim in claims:
        total.trials += claim.trials
        total.requests += claim.requests
        total.tokens += claim.tokens
        total.traffic |= claim.traffic
        lines.append(_plan_line(claim, width, tokens_per_s))
    lines.append(_plan_line(total, width, tokens_per_s))
    classes = ", ".join(sorted(total.traffic)) or "none"
    lines.append(
        f"traffic: {classes}; minutes at {tokens_per_s:,.0f} prompt tokens/s; every miss asks"
        " about 22 probes more of its class"
    )
    return lines


def _plan_line(cost: PlannedClaim, width: int, tokens_per_s: float) -> str:
    minutes = cost.tokens / tokens_per_s / 60
    return (
        f"{cost.claim:<{width}}  {cost.trials:>7,} {cost.requests:>9,} {cost.tokens:>14,}"
        f" {minutes:>8.1f}"
    )
