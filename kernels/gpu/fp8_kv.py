"""Triton kernel of patch `fp8_kv`; what it computes: kernels/fp8_kv.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.fp8_kv import check_rows
from kernels.gpu.launch import check_device, is_interpreted, next_power_of_2
from kernels.gpu.rounding import round_e4m3, to_bf16
from kernels.index_keys import SMALLEST_AMAX

BLOCK_N = 16


@triton.jit
def _round_rows(
    rows_ptr, out_ptr, rows, dim, plain, smallest,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, BLOCK_N: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    first = tl.program_id(1) * BLOCK  # a block of channels; those past `plain` are the tail
    c = first + tl.arange(0, WIDTH)
    mask = (n < rows)[:, None] & (c < tl.minimum(dim, first + BLOCK))[None, :]
    x = tl.load(rows_ptr + n[:, None] * dim + c[None, :], mask=mask, other=0.0).to(tl.float32)
    if first < plain:
        bad = tl.max(tl.where((x != x) | (tl.abs(x) == float("inf")), 1, 0), axis=1) == 1
        amax = tl.max(tl.where(x == x, tl.abs(x), 0.0), axis=1)
        amax = tl.maximum(tl.where(bad, 1.0, amax), smallest)
        bits = tl.div_rn(amax, 448.0).to(tl.int32, bitcast=True)
        exponent = ((bits >> 23) & 255) + tl.where((bits & 0x7FFFFF) == 0, 0, 1)
        scale = (exponent << 23).to(tl.float32, bitcast=True)[:, None]  # 2^n not below
        x = tl.where(bad[:, None], float("nan"), round_e4m3(x / scale) * scale)
    else:
        x = to_bf16(x, EMULATE).to(tl.float32)
    tl.store(out_ptr + n[:, None] * dim + c[None, :], x, mask=mask)


def round_rows(rows: Tensor, *, rope_dim: int, block: int) -> Tensor:
    """See kernels/fp8_kv.py."""
    check_rows(rows, rope_dim=rope_dim, block=block)
    check_device("rows", rows, _round_rows)
    out = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)
    if out.numel():
        count, dim = rows.shape
        grid = (triton.cdiv(count, BLOCK_N), triton.cdiv(dim, block))
        _round_rows[grid](
            rows.contiguous(), out, count, dim, dim - rope_dim, SMALLEST_AMAX, BLOCK=block,
            WIDTH=next_power_of_2(block), BLOCK_N=BLOCK_N, EMULATE=is_interpreted(_round_rows),
        )  # fmt: skip
    return out
