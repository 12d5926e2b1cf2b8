"""`fidelity doctor`: what a server can do, which suites can run there, at what price.

Everything that the server said is shown as plain text: no markup, no control characters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fidelity.config.deployment_spec import ROUTER
from fidelity.config.settings import Settings, resolve
from fidelity.deployment.deployment import DEFAULT_PREFILL_TOKENS_PER_S, Deployment, open_deployment
from fidelity.records import CapabilityState
from fidelity.words import Traffic

EXIT_HEALTHY = 0
EXIT_BROKEN_PROMISE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCost:
    """What one suite would cost on a server, before second stages."""

    suite: str
    requests: int
    tokens: int
    needs: tuple[str, ...] = ()
    traffic: frozenset[Traffic] = frozenset()


Costs = Callable[[Deployment], Sequence[SuiteCost]]


def main(flags: Mapping[str, object], *, costs: Costs | None = None) -> int:
    """Explore the target and print what it can do; return the exit code.

    Args:
        flags: raw settings as the command line gave them.
        costs: what the suites would cost there; None leaves the suites out.

    Raises:
        HarnessError: the server cannot be reached, or a setting is wrong.
    """
    settings = resolve(flags)
    console = Console(no_color=settings.no_color, highlight=False)
    console.print(Text(f"fidelity: {settings.measured}"), soft_wrap=True)
    return anyio.run(_examine, settings, console, costs)


async def _examine(settings: Settings, console: Console, costs: Costs | None) -> int:
    deployment = await open_deployment(settings, run_dir=None)
    try:
        prices = costs(deployment) if costs else ()
        render(deployment, settings, prices, console)
    finally:
        await deployment.aclose()
    return EXIT_BROKEN_PROMISE if deployment.capabilities.broken_promises else EXIT_HEALTHY


def render(
    deployment: Deployment, settings: Settings, prices: Sequence[SuiteCost], console: Console
) -> None:
    """Print server, roles, patches, capabilities, suites, and what would unlock more of them."""
    for line in head_lines(deployment):
        console.print(Text(line), soft_wrap=True)
    if deployment.roles:
        console.print(_role_table(deployment))
    if deployment.patches:
        console.print(_patch_table(deployment))
    console.print(_capability_table(deployment.capabilities.values()))
    if prices:
        console.print(_suite_table(deployment, settings, prices))
    for line in unlock_lines(deployment, prices):
        console.print(Text(line), soft_wrap=True)
    for state in deployment.capabilities.broken_promises:
        console.print(
            Text(f"promised in fidelity.toml, and not there: {state.name} ({plain(state.detail)})"),
            style="bold red",
            soft_wrap=True,
        )


def head_lines(deployment: Deployment) -> list[str]:
    """Return who answers, how long its context is, how fast it is, and what asking took."""
    found, spent = deployment.capabilities, deployment.client.caps.spent
    speed = found.speed
    length = f"{found.max_model_len:,} tokens" if found.max_model_len else "not told"
    page = f"{found.page_size} tokens" if found.page_size else "not told"
    prefill = _rate(speed.prefill_tokens_per_s)
    decode = _rate(speed.decode_tokens_per_s)
    cap = deployment.client.caps.max_tokens
    version = plain(found.version) or "not told"
    return [
        f"{deployment.base_url}: model {plain(deployment.model)}, version {version}",
        f"dialect {found.dialect}",
        f"longest context {length}, page {page}, prefill {prefill}, decode {decode}",
        f"asked {found.requests} requests of {spent.tokens:,} tokens; a run may use {cap or 0:,}",
    ]


def unlock_lines(deployment: Deployment, prices: Sequence[SuiteCost]) -> list[str]:
    """Return what would unlock more, one line a flag or remedy, with what would follow from it."""
    remedies: dict[str, list[str]] = {}
    for state in deployment.capabilities.values():
        if not state.present and state.unlock:
            remedies.setdefault(state.unlock, []).append(state.name)
    lines = []
    for remedy, names in remedies.items():
        missing = {n for n, s in deployment.capabilities.items() if not s.present} - set(names)
        suites = [
            price.suite
            for price in prices
            if set(price.needs) & set(names) and not set(price.needs) & missing
        ]
        then = f"; then {', '.join(suites)} can run" if suites else ""
        lines.append(f"  {remedy}: {', '.join(names)}{then}")
    return ["what would unlock more:", *lines] if lines else []


def _role_table(deployment: Deployment) -> Table:
    table = Table(title="its processes", title_justify="left")
    for name in ("role", "address", "host", "started by", "version"):
        table.add_column(name, overflow="fold")
    servers = {ROUTER: deployment, **deployment.roles}
    for role, server in servers.items():
        spec = deployment.spec.roles[role]
        who = "a person" if spec.manual else "the harness" if server.launched else "somebody else"
        version = plain(str(server.server_info.get("version", "")))[:60] or "not told"
        table.add_row(role, server.base_url, spec.host, who, Text(version))
    return table


def _patch_table(deployment: Deployment) -> Table:
    table = Table(title="its patches", title_justify="left")
    for name in ("patch", "phase", "state", "calls", "what shows it"):
        table.add_column(name, overflow="fold")
    for patch in deployment.patches:
        calls = "" if patch.calls is None else f"{patch.calls:,}"
        shown = patch.proof or patch.detail
        table.add_row(
            Text(plain(patch.name)),
            patch.phase,
            Text(plain(patch.state)),
            calls,
            Text(plain(shown)),
        )
    return table


def _rate(tokens_per_s: float | None) -> str:
    return "not measured" if tokens_per_s is None else f"{tokens_per_s:,.0f} tokens/s"


def _capability_table(states: Any) -> Table:
    table = Table(title="what the server can do", title_justify="left")
    for name in ("capability", "", "what was seen", "what unlocks it"):
        table.add_column(name, overflow="fold")
    for state in states:
        table.add_row(
            Text(state.name),
            Text(_mark(state), style="green" if state.present else "red"),
            Text(plain(state.detail)),
            Text(state.unlock),
        )
    return table


def _mark(state: CapabilityState) -> str:
    if state.present:
        return "yes"
    return "MISSING" if state.expected else "no"


def _suite_table(deployment: Deployment, settings: Settings, prices: Sequence[SuiteCost]) -> Table:
    table = Table(
        title=f"what the suites would cost at budget {settings.budget}", title_justify="left"
    )
    for name in ("suite", "can run", "requests", "tokens", "minutes"):
        table.add_column(name, overflow="fold")
    speed = deployment.capabilities.speed.prefill_tokens_per_s or DEFAULT_PREFILL_TOKENS_PER_S
    for price in prices:
        table.add_row(
            Text(price.suite),
            Text(obstacle(price, deployment, settings) or "yes"),
            Text(f"{price.requests:,}"),
            Text(f"{price.tokens:,}"),
            Text(f"{price.tokens / speed / 60:.1f}"),
        )
    return table


def obstacle(price: SuiteCost, deployment: Deployment, settings: Settings) -> str:
    """Return what keeps a suite from running, and what would change that; "" when nothing does."""
    missing = [name for name in price.needs if not deployment.capabilities.has(name)]
    if missing:
        states = [deployment.capabilities.get(name) for name in missing]
        flags = [state.unlock for state in states if state is not None and state.unlock]
        needs = f"needs {', '.join(missing)}"
        return f"{needs} (server: {'; '.join(flags)})" if flags else needs
    # A claim whose traffic is refused ends before it asks, so that nothing of it is in the price.
    wanted = price.traffic if price.requests else {Traffic.LOAD, Traffic.DISRUPTIVE}
    forbidden = sorted(wanted - set(settings.allow))
    return f"needs --fidelity-allow {','.join(forbidden)}" if forbidden else ""


def plain(text: str) -> str:
    """Return a server's text without line breaks and control characters."""
    return "".join(c if c.isprintable() else " " for c in text)
