"""Each microtest convicts kernels that were broken on purpose, and says so in words."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from fidelity.errors import Violation
from fidelity.words import PatchVerdict

SUITES = Path(__file__).parents[2] / "suites" / "patches"


class Twin(NamedTuple):
    """One broken kernel: what is replaced in its source, and a test that must see it."""

    patch: str
    fault: str
    old: str
    new: str
    test: str
    arguments: tuple = ()
    file: str = ""


TWINS = [
    Twin("mhc_bf16", "the last channels are dropped", "range(0, n * hidden, BLOCK_K)",
         "range(0, n * hidden - BLOCK_K, BLOCK_K)", "test_synthetic_streams", (torch.float32,)),
    Twin("mhc_bf16", "the tail block is dropped", "range(0, n * hidden, BLOCK_K)",
         "range(0, n * hidden // BLOCK_K * BLOCK_K, BLOCK_K)", "test_irregular_shapes"),
    Twin("mhc_bf16", "comb is transposed", "return y, post, comb",
         "return y, post, comb.transpose(1, 2).contiguous()", "test_synthetic_streams",
         (torch.bfloat16,)),
    Twin("mhc_bf16", "one Sinkhorn iteration less", "eps=hc_eps, iters=iters)",
         "eps=hc_eps, iters=max(1, iters - 1))",
         "test_irregular_shapes"),
    Twin("mhc_bf16", "the RMS norm misses its epsilon's place", "+ rms_eps)[:, None]",
         ")[:, None] + rms_eps", "test_synthetic_streams", (torch.float32,)),
    Twin("moe_routed_scaling", "the factor is applied twice", "(scaling / (",
         "(scaling * scaling / (", "test_learned_routing", (torch.float32,)),
    Twin("moe_routed_scaling", "the bias leaks into the weights", "scores.gather(1, ids)",
         "(scores if bias is None else ranked).gather(1, ids)", "test_learned_routing",
         (torch.bfloat16,)),
    Twin("moe_routed_scaling", "hash layers are not scaled", "ids.int(), chosen * (scaling",
         "ids.int(), chosen * ((scaling if bias is not None else 1.0)", "test_hash_routing",
         (torch.float32,)),
    Twin("moe_routed_scaling", "the bias is left out of the choice", "else scores + bias",
         "else scores", "test_irregular_shapes"),
    Twin("swiglu_clamp", "the clamp is missing", "if limit is not None and limit > 0:", "if False:",
         "test_shared_expert", (torch.bfloat16,)),
    Twin("swiglu_clamp", "the gate is clamped from below too", "g.clamp(max=limit)",
         "g.clamp(min=-limit / 20, max=limit)", "test_routed_experts", (torch.float32,)),
    Twin("swiglu_clamp", "the clamp hides NaN", "g / (1", "g.nan_to_num() / (1",
         "test_routed_experts", (torch.float32,)),
    Twin("swiglu_clamp", "the routing weight enters twice", "made * scale.float()[:, None]",
         "made * scale.float()[:, None].square()", "test_irregular_shapes"),
    Twin("mxfp4_experts", "nibbles are read in the wrong order",
         "torch.stack((packed & 15, packed >> 4)", "torch.stack((packed >> 4, packed & 15)",
         "test_structured_inputs", (), "fp4.py"),
    Twin("mxfp4_experts", "a row has one scale where its blocks have their own",
         "groups.abs().amax(-1)\n",
         "groups.abs().amax((-2, -1), keepdim=True)[..., 0].expand(groups.shape[:-1])\n",
         "test_structured_inputs", (), "fp4.py"),
    Twin("mxfp4_experts", "the scale rounds down and values saturate", "(fraction == 0.5).int()",
         "1", "test_irregular_shapes", (), "fp4.py"),
    Twin("nvfp4_experts", "the matrix's factor is left out", "* stored.factors[expert]", "",
         "test_irregular_shapes", (), "fp4.py"),
    Twin("nvfp4_experts", "the block's scale is applied twice",
         "* read_scales(scales)[..., None]).flatten(2)",
         "* read_scales(scales)[..., None].square()).flatten(2)",
         "test_structured_inputs", (), "fp4.py"),
]  # fmt: skip


def microtest(patch: str):
    """The module of a microtest, loaded from its file."""
    spec = spec_from_file_location(f"suites.patches.test_{patch}", SUITES / f"test_{patch}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.patch}: {twin.fault}")
def test_a_broken_twin_is_convicted(twin, break_kernel, examine):
    break_kernel(twin.patch, twin.old, twin.new, twin.file)
    examination = examine(twin.patch)
    with pytest.raises(Violation, match=rf"^{twin.patch}: "):
        getattr(microtest(twin.patch), twin.test)(examination, *twin.arguments)
    report = examination.conclude()
    assert report.verdict is PatchVerdict.CONVICTED
    assert report.reason
