"""What a server says is in use: it must return to where it was when all requests are over."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from fidelity.checks.abort_plans import How
from fidelity.checks.bystanders import storm
from fidelity.endpoint.prometheus_text import pick
from fidelity.probes.dialogue import user
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.words import Traffic

if TYPE_CHECKING:
    from fidelity.endpoint.client import Client

IN_USE = {
    "running": ("sglang:num_running_reqs", "vllm:num_requests_running"),
    "queued": ("sglang:num_queue_reqs", "vllm:num_requests_waiting"),
    "used": (
        "sglang:num_used_tokens",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
    ),
}
"""Gauges by what they tell; the first name that the server has counts."""
SETTLE_S = 20.0
POLL_S = 0.2
SAME_SHARE = 1e-6


def gauges_probe(
    *, seed: str, victims: int, hows: Sequence[How], left_running: bool = False
) -> Probe:
    """Return a probe: gauges before a storm of aborts, the storm, gauges when it has settled.

    Args:
        seed: of the victims.
        victims: requests that are aborted at once.
        hows: ways of aborting that the deployment has.
        left_running: the damage of the positive control: one request is still running when the
            gauges are read.
    """

    async def script(ask: Ask) -> ProbeResult:
        before = await settled(ask.client, {"running": 0.0, "queued": 0.0})
        if not before:
            return ProbeResult(ok=None, error="the server's metrics tell nothing of what is in use")
        if before.get("running") or before.get("queued"):
            return ProbeResult(
                ok=None,
                error=f"somebody else uses the server ({_words(before)}): its gauges cannot return"
                " to where they were",
            )
        if left_running:
            after = await _while_running(ask)
        else:
            await storm(ask, seed=seed, victims=victims, hows=hows)
            after = await settled(ask.client, before)
        changed = [name for name in before if not same(before[name], after.get(name))]
        return ProbeResult(
            ok=not changed,
            value=max((after.get(name, 0.0) - before[name] for name in before), default=0.0),
            cell={f"{name} after": after.get(name, -1.0) for name in before},
            paths=("aborted",),
        )

    return Probe(
        family="gauges",
        key=f"{victims}/{seed}",
        script=script,
        cell={"victims": victims},
        recipe={
            "builder": "gauges_probe",
            "seed": seed,
            "victims": victims,
            "hows": [str(how) for how in hows],
            "left_running": left_running,
        },
        expected="the same as before the storm",
        cost_tokens=250 * victims,
        cost_requests=victims,
        traffic=Traffic.DISRUPTIVE,
    )


async def read_gauges(client: Client) -> dict[str, float]:
    """Return what is in use now, by name; only what the server tells."""
    metrics = await client.metrics()
    found = {name: pick(metrics, names) for name, names in IN_USE.items()}
    return {name: value for name, value in found.items() if value is not None}


async def settled(client: Client, before: Mapping[str, float]) -> dict[str, float]:
    """Return the gauges once they are as before, or as they are when the time is over."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = await read_gauges(client)
        if not now or all(same(before[name], now.get(name, before[name])) for name in before):
            return now
        if time.monotonic() > deadline:
            return now
        await anyio.sleep(POLL_S)


def same(before: float, after: float | None) -> bool:
    """Return True when a gauge is where it was."""
    return after is not None and abs(after - before) <= SAME_SHARE * max(1.0, abs(before))


async def _while_running(ask: Ask) -> dict[str, float]:
    found: list[dict[str, float]] = []
    started = anyio.Event()

    async def run() -> None:
        with anyio.move_on_after(SETTLE_S) as scope:
            scopes.append(scope)
            started.set()
            await ask.chat([user("Count from 1 to 500.")], label="left running", max_tokens=1_000)

    scopes: list[anyio.CancelScope] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await started.wait()
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            found.append(await read_gauges(ask.client))
            if found[-1].get("running") or found[-1].get("used"):
                break
            await anyio.sleep(POLL_S / 4)
        scopes[0].cancel()
    return found[-1]


def _words(gauges: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in gauges.items())
