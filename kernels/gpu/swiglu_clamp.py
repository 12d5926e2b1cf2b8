"""Triton kernel of patch `swiglu_clamp`; what it computes: kernels/swiglu_clamp.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.launch import check_device
from kernels.swiglu_clamp import check_swiglu

BLOCK = 1024


@triton.jit
def _swiglu(
    gate_ptr, up_ptr, scale_ptr, out_ptr, total, width, gate_stride, up_stride, limit,
    CLAMP: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < total
    row, column = at // width, at % width
    g = tl.load(gate_ptr + row * gate_stride + column, mask=live, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + row * up_stride + column, mask=live, other=0.0).to(tl.float32)
    if CLAMP:
        g = tl.where(g > limit, limit, g)  # a comparison keeps NaN, tl.minimum may drop it
        u = tl.where(u > limit, limit, tl.where(u < -limit, -limit, u))
    made = g / (1.0 + tl.exp(-g)) * u
    if SCALED:
        made *= tl.load(scale_ptr + row, mask=live, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, made, mask=live)


def swiglu(gate: Tensor, up: Tensor, limit: float | None, scale: Tensor | None) -> Tensor:
    """See kernels/swiglu_clamp.py."""
    check_swiglu(gate, up, limit, scale)
    check_device("gate", gate, _swiglu)
    gate, up = (x if x.stride(1) == 1 else x.contiguous() for x in (gate, up))
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    clamp = limit is not None and limit > 0
    if out.numel():
        _swiglu[(triton.cdiv(out.numel(), BLOCK),)](
            gate, up, gate if scale is None else scale.contiguous(), out,
            out.numel(), gate.shape[1], gate.stride(0), up.stride(0), float(limit or 0.0),
            CLAMP=clamp, SCALED=scale is not None, BLOCK=BLOCK,
        )  # fmt: skip
    return out
