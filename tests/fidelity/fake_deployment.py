"""An in-process deployment for tests of the plugin: answers without HTTP, fails on demand."""

from fidelity.errors import EndpointError
from fidelity.probe import Probe, ProbeResult
from fidelity.records import CapabilityState
from fidelity.words import Score


class FakeClient:
    def __init__(self):
        self.epoch = 0
        self.asked = []

    async def answer(self, right):
        self.asked.append(right)
        if isinstance(right, str):
            raise EndpointError(right)
        return right

    async def patches(self):
        return [{"name": "index_keys", "state": "on", "calls": 7, "value": "int4"}]


class FakeDeployment:
    def __init__(self, *, expects=(), present=("chat", "patches"), model="fake-model"):
        self.name = "fake"
        self.base_url = "http://127.0.0.1:1/v1"
        self.model = model
        self.expects = tuple(expects)
        self.launched = False
        self.launch_command = ()
        self.server_info = {"version": "1"}
        self.client = FakeClient()
        self.capabilities = {
            name: CapabilityState(name=name, present=True) for name in present
        } | {
            "logprobs": CapabilityState(
                name="logprobs", present=False, detail="refused", unlock="--logprobs"
            )
        }
        self.closed = False

    async def aclose(self):
        self.closed = True


def probe(key, right=True, *, cluster="", lost="", cell=None, cost=100):
    """Return a probe whose answer is known beforehand: True, False, or an error sentence."""

    async def script(ask):
        ok = await ask.client.answer(right)
        return ProbeResult(ok=ok, score=Score.RIGHT if ok else Score.WRONG, lost=lost)

    return Probe(
        family="fake",
        key=str(key),
        script=script,
        cell=cell or {"length_tokens": 64},
        cluster=cluster,
        cost_tokens=cost,
    )


def probes(right, wrong=0, errors=0, **options):
    """Return that many probes of each kind, wrong ones last, keys counted up."""
    kinds = [True] * right + [False] * wrong + ["the server refused the connection"] * errors
    return [probe(index, kind, **options) for index, kind in enumerate(kinds)]
