"""Every fault turns exactly the claims red that are about it, and leaves all others green."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from fault_transport import FaultTransport, Upstream
from faults_beside_text import FAULTS as BESIDE_FAULTS
from parameter_faults import FAULTS as PARAMETER_FAULTS
from plumbing_faults import FAULTS as PLUMBING_FAULTS

from fidelity.checks.conformance import measured
from fidelity.checks.conformance_wire import Line
from fidelity.checks.plumbing_admission import LOAD, OVERFLOWS, overflow
from fidelity.checks.plumbing_alignment import ALIGNMENT
from fidelity.checks.plumbing_alternatives import ALTERNATIVES
from fidelity.checks.plumbing_arrays import ARRAYS
from fidelity.checks.plumbing_choices import SEVERAL
from fidelity.checks.plumbing_completions import COMPLETIONS
from fidelity.checks.plumbing_counts import COUNTS
from fidelity.checks.plumbing_extensions import EXTENSIONS
from fidelity.checks.plumbing_formats import FORMATS
from fidelity.checks.plumbing_history import HISTORY
from fidelity.checks.plumbing_limits import ENDS, STOPS
from fidelity.checks.plumbing_logprobs import LOGPROBS
from fidelity.checks.plumbing_parameters import PARAMETERS
from fidelity.checks.plumbing_probabilities import PROBABILITIES
from fidelity.checks.plumbing_refusals import REFUSALS
from fidelity.checks.plumbing_sampling import SAMPLING
from fidelity.checks.plumbing_shape import SHAPES, STREAMS
from fidelity.checks.plumbing_statuses import STATUSES
from fidelity.checks.plumbing_tool_choice import TOOL_CHOICE
from fidelity.checks.plumbing_tools import REASONING, TOOLS
from fidelity.checks.plumbing_twins import TWINS
from fidelity.dialects.engine import ENGINE
from fidelity.endpoint.caps import Caps
from fidelity.endpoint.client import Client
from fidelity.endpoint.pacing import Pacer
from fidelity.endpoint.server_calls import Server
from fidelity.probes.probe import Ask
from fidelity.words import Traffic

FAULTS = (*PLUMBING_FAULTS, *PARAMETER_FAULTS, *BESIDE_FAULTS)
ROOT = Path(__file__).parents[2]
CHECKS = (
    *(*SHAPES, *STREAMS, *COUNTS, *ENDS, *STOPS, *TWINS, *TOOLS, *REASONING, *HISTORY),
    *(*SAMPLING, *PARAMETERS, *FORMATS, *LOGPROBS, *ALTERNATIVES, *COMPLETIONS, *REFUSALS, *LOAD),
    *(*ALIGNMENT, *ARRAYS, *SEVERAL, *PROBABILITIES, *EXTENSIONS, *TOOL_CHOICE, *STATUSES),
    *(overflow(name, 32_768, "quick") for name in OVERFLOWS),
)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    log = (tmp_path_factory.mktemp("engine") / "log").open("wb")
    command = ["-m", "engine", "serve", "--model", "engine/checkpoints/nano", "--port", str(port)]
    server = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=log,
        stderr=log,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(server, url)
        yield Upstream(url)
    finally:
        server.terminate()
        server.wait(20)
        log.close()


def _wait_until_ready(server, url):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the engine did not start")


async def results_under(upstream, fault):
    client = Client(
        FaultTransport(upstream, fault),
        Server(model="nano", dialect=ENGINE),
        caps=Caps(max_requests=100_000, max_tokens=None, allow=tuple(Traffic)),
        pacer=Pacer(concurrency=16, load_concurrency=40, max_wait_s=5),
    )
    try:
        return {
            check.name: await measured(check, Line(Ask(client), traffic=check.traffic))
            for check in CHECKS
        }
    finally:
        await client.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "_"))
async def test_a_fault_turns_its_claims_red_and_no_other(upstream, fault):
    results = await results_under(upstream, fault)
    red = {name: result.cell for name, result in results.items() if result.ok is False}
    assert set(red) == set(fault.red), red
    if not fault.red:
        assert all(result.ok for result in results.values())


def test_names_of_checks_are_unique():
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    assert {name for fault in FAULTS for name in fault.red} <= set(names)
