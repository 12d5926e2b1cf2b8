"""Patch `swiglu_clamp`: clamp, silu, product and routing weight of an expert in one pass.

silu(min(gate, limit)) * clamp(up, -limit, limit) * routing weight, in fp32, before the second
product, as DeepSeek's own code does; the baseline multiplies the weight in after it. The shared
expert takes the same pass without a weight. NaN stays NaN: a clamp must not hide it.

On CUDA this is a Triton kernel (kernels/gpu/swiglu_clamp.py); on the CPU its arithmetic.
"""

import torch
from torch import Tensor

from kernels.checks import check_float, check_limit, check_shape
from kernels.patch import Installation, kernel_patch


def check_swiglu(gate: Tensor, up: Tensor, limit: float | None, scale: Tensor | None) -> None:
    """Refuse what the kernel cannot do; shared by both forms of it."""
    check_shape("gate", gate, -1, -1)
    check_float("gate", gate)
    check_shape("up", up, *gate.shape)
    check_float("up", up, like=gate)
    if scale is not None:
        check_shape("scale", scale, gate.shape[0])
        check_float("scale", scale, like=gate)
    check_limit(limit)


def swiglu(gate: Tensor, up: Tensor, limit: float | None, scale: Tensor | None) -> Tensor:
    """The kernel's arithmetic on the CPU.

    Args:
        gate: [N, I].
        up: [N, I].
        limit: None or <= 0: no clamp.
        scale: [N], multiplied into each row; None: 1.

    Returns: [N, I] in gate's dtype.
    """
    check_swiglu(gate, up, limit, scale)
    g, u = gate.float(), up.float()
    if limit is not None and limit > 0:
        g, u = g.clamp(max=limit), u.clamp(min=-limit, max=limit)
    made = g / (1 + torch.exp(-g)) * u
    if scale is not None:
        made = made * scale.float()[:, None]
    return made.to(gate.dtype)


def _install(into: Installation) -> None:
    if into.on_gpu:
        from kernels.gpu.swiglu_clamp import swiglu as run
    else:
        run = swiglu

    def counted(gate: Tensor, up: Tensor, limit: float | None, scale: Tensor | None) -> Tensor:
        into.count()
        return run(gate, up, limit, scale)

    into.functions["_swiglu"] = counted


PATCH = kernel_patch(
    "swiglu_clamp",
    phase="both",
    summary="expert pre-activation clamp fused with the activation and the routing weight",
    source="DeepSeek-V4 reference code (swiglu_limit, weight before the second product)",
    install=_install,
)
