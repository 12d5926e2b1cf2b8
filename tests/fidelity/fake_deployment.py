"""An in-process deployment for tests of the plugin: answers without HTTP, fails on demand.

Written for pytester: a test copies this file beside its suites.
"""

import time
from types import SimpleNamespace

import anyio

from fidelity.deployment.capabilities import Capabilities
from fidelity.endpoint.caps import Caps
from fidelity.errors import EndpointError
from fidelity.probes.probe import Probe, ProbeResult
from fidelity.records import CapabilityState, Exchange
from fidelity.words import Score


class FakeClient:
    def __init__(self):
        self.epochs = SimpleNamespace(epoch=0)
        self.caps = Caps(max_requests=10**6, max_tokens=None, allow=())
        self.asked = []

    async def answer(self, key, right, delay_s):
        self.asked.append(key)
        await anyio.sleep(delay_s)
        if isinstance(right, str):
            raise EndpointError(right)
        return right

    async def patches(self):
        return [{"name": "index_keys", "state": "on", "calls": 7, "value": "int4"}]


class FakeDeployment:
    """`absent` capabilities are known and not there; all others of the list are."""

    def __init__(self, *, expects=(), absent=("logprobs",), model="fake-model"):
        self.name = "fake"
        self.base_url = "http://127.0.0.1:1/v1"
        self.model = model
        self.expects = tuple(expects)
        self.launched = False
        self.launch_command = ()
        self.server_info = {"version": "1"}
        self.roles = {}
        self.client = FakeClient()
        names = ("chat", "patches", "logprobs")
        states = {
            name: CapabilityState(name=name, present=name not in absent, unlock=f"--{name}")
            for name in names
        }
        self.capabilities = Capabilities(states=states, max_model_len=4096)

    async def aclose(self):
        self.closed_at = time.monotonic()


def probe(key, right=True, *, cluster="", lost="", cell=None, delay_s=0.0, text=""):
    """Return a probe whose answer is known beforehand: True, False, or an error sentence."""

    async def script(ask):
        ok = await ask.client.answer(str(key), right, delay_s)
        ask.exchanges.append(
            Exchange(request_id=f"r{key}", text=text, prompt_tokens=100, completion_tokens=5)
        )
        return ProbeResult(ok=ok, score=Score.RIGHT if ok else Score.WRONG, lost=lost)

    return Probe(
        family="fake",
        key=str(key),
        script=script,
        cell=cell or {"length_tokens": 64},
        cluster=cluster,
        cost_tokens=100,
    )


def probes(right, wrong=0, errors=0, **options):
    """Return that many probes of each kind, wrong ones and then errors last, keys counted up."""
    kinds = [True] * right + [False] * wrong + ["the server refused the connection"] * errors
    return [probe(index, kind, **options) for index, kind in enumerate(kinds)]
