"""The engine with each patch on, alone and together: it runs, it answers, and it says so."""

import pytest
import torch

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from engine.sequence import SamplingParams
from kernels import PATCHES
from tests.engine.conftest import NANO

KERNELS = [patch.name for patch in PATCHES if patch.install and patch.phase != "encoding"]
VALUES = {"index_keys": "index_keys=fp8", "index_topk": "index_topk=64"}


def engine_with(*patches: str) -> Engine:
    return Engine(EngineConfig(model=str(NANO), patches=patches, max_total_tokens=4096))


def answer(engine: Engine) -> list[list[int]]:
    """Two prompts side by side, one long enough for selection; eight greedy tokens each."""
    prompts = [[(i * 37) % 900 + 50 for i in range(n)] for n in (300, 20)]
    outputs = engine.generate(prompts, SamplingParams(max_tokens=8, temperature=0.0))
    return [[token for output in one for token in output.new_token_ids] for one in outputs]


def states(engine: Engine) -> dict[str, tuple[str, int]]:
    return {s["name"]: (s["state"], s["calls"]) for s in engine.ops.patch_states()}


@pytest.fixture(scope="module")
def unpatched() -> list[list[int]]:
    torch.set_num_threads(1)
    return answer(engine_with())


@pytest.mark.parametrize("name", [*KERNELS, *VALUES])
def test_each_patch_runs_alone_and_nothing_else_is_on(unpatched, name):
    engine = engine_with(VALUES.get(name, name))
    made = answer(engine)
    assert all(len(tokens) > 1 for tokens in made)  # so that something was decoded
    assert (made == unpatched) or name != "moe_routed_scaling"  # it moves nothing but last bits
    found = states(engine)
    state, calls = found.pop(name)
    assert state == "on"
    assert calls > 0
    assert {state for state, _ in found.values()} == {"off"}


@pytest.mark.parametrize("experts", ["mxfp4_experts", "nvfp4_experts"])
def test_all_patches_run_together(experts):
    names = [name for name in KERNELS if not name.endswith("fp4_experts")] + [experts]
    engine = engine_with(*names, *VALUES.values(), "default_thinking")
    assert all(len(tokens) > 1 for tokens in answer(engine))
    found = states(engine)
    assert all(found[name][1] > 0 for name in [*names, *VALUES])
    assert found["default_thinking"] == ("on", 0)  # nobody asked the encoder


def test_two_formats_of_the_experts_are_refused():
    with pytest.raises(ConfigError, match=r"another format of the experts is on already"):
        engine_with("mxfp4_experts", "nvfp4_experts")


def test_a_decode_patch_does_not_run_in_prefill():
    engine = engine_with("splitk_decode", "indexer_triton")
    prompt = [(i * 37) % 900 + 50 for i in range(200)]
    engine.generate([prompt], SamplingParams(max_tokens=1, temperature=0.0))
    assert states(engine)["splitk_decode"] == ("on", 0)
    assert states(engine)["indexer_triton"] == ("on", 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_all_patches_run_together_on_a_gpu():
    names = [name for name in KERNELS if name != "nvfp4_experts"]
    engine = Engine(
        EngineConfig(
            model=str(NANO), device="cuda", patches=(*names, *VALUES.values()),
            max_total_tokens=4096,
        )
    )  # fmt: skip
    assert all(len(tokens) > 1 for tokens in answer(engine))
    found = states(engine)
    assert all(found[name][1] > 0 for name in [*names, *VALUES])
