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
