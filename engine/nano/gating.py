"""The experts' activation: clamped SwiGLU times the routing weight, in one pass each way."""
# ruff: noqa: ANN001, ANN202, E741 - Triton's language has no types, and names shapes by letters
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, import-untyped"

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU build of torch: the torch version does the work
    triton = None

_BLOCK = 16


def gated_torch(inner: Tensor, share: Tensor, limit: float) -> Tensor:
    """Gate rows and value rows [N, E, 2I], share fp32 [N, E] -> [N, E, I] in inner's dtype."""
    gate, value = inner.chunk(2, -1)
    out = functional.silu(gate.clamp(max=limit)) * value.clamp(-limit, limit)
    return out * share.to(inner.dtype).unsqueeze(-1)


class Gated(torch.autograd.Function):
    """`gated_torch`, fused."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor, share: Tensor, limit: float) -> Tensor:
        """See `gated_torch`."""
        inner, share = inner.contiguous(), share.contiguous()
        count, experts, double = inner.shape
        out = torch.empty(count, experts, double // 2, dtype=inner.dtype, device=inner.device)
        rows = count * experts
        _forward_kernel[(triton.cdiv(rows, _BLOCK),)](
            inner, share, out, rows, limit, I=double // 2, P=_power(double // 2), BLOCK=_BLOCK
        )
        ctx.save_for_backward(inner, share)
        ctx.limit = limit
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients of inner and share."""
        inner, share = ctx.saved_tensors
        dy = grads[0].contiguous()
        dinner, dshare = torch.empty_like(inner), torch.empty_like(share)
        half, rows = inner.shape[-1] // 2, share.numel()
        _backward_kernel[(triton.cdiv(rows, _BLOCK),)](
            inner, share, dy, dinner, dshare, rows, ctx.limit, I=half, P=_power(half), BLOCK=_BLOCK
        )
        return dinner, dshare, None


def _power(size: int) -> int:
    power: int = triton.next_power_of_2(size)
    return power


if triton is not None:

    @triton.jit
    def _forward_kernel(
        INNER, SHARE, OUT, rows, limit, I: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr
    ):
        r = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        i = tl.arange(0, P)
        live = r < rows
        cells = live[:, None] & (i < I)[None, :]
        at = INNER + r[:, None] * (2 * I) + i[None, :]
        g = tl.minimum(tl.load(at, mask=cells, other=0.0).to(tl.float32), limit)
        u = tl.load(at + I, mask=cells, other=0.0).to(tl.float32)
        u = tl.minimum(tl.maximum(u, -limit), limit)
        share = tl.load(SHARE + r, mask=live, other=0.0)
        out = g * tl.sigmoid(g) * u * share[:, None]
        tl.store(OUT + r[:, None] * I + i[None, :], out.to(OUT.dtype.element_ty), mask=cells)

    @triton.jit
    def _backward_kernel(
        INNER, SHARE, DY, DINNER, DSHARE, rows, limit,
        I: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        r = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        i = tl.arange(0, P)
        live = r < rows
        cells = live[:, None] & (i < I)[None, :]
        at = r[:, None] * (2 * I) + i[None, :]
        raw_g = tl.load(INNER + at, mask=cells, other=0.0).to(tl.float32)
        raw_u = tl.load(INNER + at + I, mask=cells, other=0.0).to(tl.float32)
        g = tl.minimum(raw_g, limit)
        u = tl.minimum(tl.maximum(raw_u, -limit), limit)
        s = tl.sigmoid(g)
        a = g * s
        share = tl.load(SHARE + r, mask=live, other=0.0)
        dy = tl.load(DY + r[:, None] * I + i[None, :], mask=cells, other=0.0).to(tl.float32)
        tl.store(DSHARE + r, tl.sum(dy * a * u, axis=1), mask=live)
        dy = dy * share[:, None]
        dg = tl.where(raw_g <= limit, dy * u * (s + a * (1 - s)), 0.0)
        du = tl.where(tl.abs(raw_u) <= limit, dy * a, 0.0)
        tl.store(DINNER + at, dg.to(DINNER.dtype.element_ty), mask=cells)
        tl.store(DINNER + at + I, du.to(DINNER.dtype.element_ty), mask=cells)
