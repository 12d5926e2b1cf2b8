"""Triton product with fp4 weights that reads packed codes; what it computes: kernels/fp4.py.

Even and odd channels lie in the low and the high half of a byte, so a tile is two products: the
even channels of x with the low codes, the odd ones with the high codes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.fp4 import Fp4Weights, check_product
from kernels.gpu.launch import check_device, is_interpreted
from kernels.gpu.rounding import e2m1, e4m3, e8m0, to_bf16

BLOCK_N, BLOCK_M, BLOCK_BYTES = 16, 64, 64


@triton.jit
def _product(
    x_ptr, packed_ptr, scales_ptr, factor_ptr, out_ptr, rows, columns, channels,
    BLOCK: tl.constexpr, E8M0: tl.constexpr, EMULATE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_BYTES: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    live, real = n < rows, m < columns
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    bytes_ = channels // 2
    x_row = x_ptr + n.to(tl.int64)[:, None] * channels
    w_row = m.to(tl.int64)[None, :]
    for first in range(0, bytes_, BLOCK_BYTES):
        b = first + tl.arange(0, BLOCK_BYTES)
        inside = b < bytes_
        x_mask = live[:, None] & inside[None, :]
        even = to_bf16(tl.load(x_row + 2 * b[None, :], mask=x_mask, other=0.0), EMULATE)
        odd = to_bf16(tl.load(x_row + 2 * b[None, :] + 1, mask=x_mask, other=0.0), EMULATE)
        w_mask = inside[:, None] & real[None, :]
        codes = tl.load(packed_ptr + w_row * bytes_ + b[:, None], mask=w_mask, other=0)
        codes = codes.to(tl.int32)
        at = w_row * (channels // BLOCK) + (2 * b // BLOCK)[:, None]
        raw = tl.load(scales_ptr + at, mask=w_mask, other=0).to(tl.int32)
        scale = e8m0(raw) if E8M0 else e4m3(raw)
        total = tl.dot(even, to_bf16(e2m1(codes & 15) * scale, EMULATE), total)
        total = tl.dot(odd, to_bf16(e2m1(codes >> 4) * scale, EMULATE), total)
    total *= tl.load(factor_ptr)
    out = out_ptr + n.to(tl.int64)[:, None] * columns + m[None, :]
    tl.store(out, total, mask=live[:, None] & real[None, :])


def product(x: Tensor, stored: Fp4Weights, expert: int) -> Tensor:
    """See kernels/fp4.py."""
    check_product(x, stored, expert)
    check_device("x", x, _product)
    packed, scales = stored.packed[expert], stored.scales[expert].view(torch.uint8)
    out = torch.empty((x.shape[0], packed.shape[0]), dtype=x.dtype, device=x.device)
    if out.numel():
        channels = 2 * packed.shape[1]
        grid = (triton.cdiv(x.shape[0], BLOCK_N), triton.cdiv(packed.shape[0], BLOCK_M))
        _product[grid](
            x.contiguous(), packed, scales, stored.factors[expert], out, x.shape[0],
            packed.shape[0], channels, BLOCK=channels // scales.shape[1],
            E8M0=stored.scales.dtype is torch.uint8, EMULATE=is_interpreted(_product),
            BLOCK_N=BLOCK_N, BLOCK_M=BLOCK_M, BLOCK_BYTES=BLOCK_BYTES,
        )  # fmt: skip
    return out
