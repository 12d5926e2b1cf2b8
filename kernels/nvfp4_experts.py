"""Patch `nvfp4_experts`: routed experts' weights in nvfp4: e4m3 scales, one factor a matrix.

The weights are rounded once, at their first use, and kept as they are stored; what is stored and
what the product computes: kernels/fp4.py. On CUDA the product is a Triton kernel
(kernels/gpu/fp4.py) that reads the packed codes; on the CPU its arithmetic in torch.
"""

from torch import Tensor

from kernels.fp4 import Fp4Weights, product, quantise
from kernels.patch import Installation, PatchUnsupported, kernel_patch
from kernels.prepared import Prepared


def store(weights: Tensor) -> Fp4Weights:
    """Matrices [E, M, K] in this format."""
    return quantise(weights, "nvfp4")


def _install(into: Installation) -> None:
    if "_expert_product" in into.functions:
        raise PatchUnsupported("nvfp4_experts", "another format of the experts is on already")
    if into.on_gpu:
        from kernels.gpu.fp4 import product as run
    else:
        run = product
    stored = Prepared(store)

    def counted(x: Tensor, weights: Tensor, expert: int) -> Tensor:
        into.count()
        return run(x, stored(weights), expert)

    into.functions["_expert_product"] = counted


PATCH = kernel_patch(
    "nvfp4_experts",
    phase="both",
    summary="routed experts' weights in nvfp4",
    source="NVFP4 checkpoints of DeepSeek-V4",
    install=_install,
)
