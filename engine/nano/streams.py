"""Reading and writing the four residual streams, each in one pass over memory.

`collapse`: y = sum_k pre_k X_k.  `expand`: X'_k = post_k f + sum_j mix_jk X_j.
The torch versions define them; the Triton versions are for bf16 on CUDA and are checked against
the torch ones before a training run uses them.
"""
# ruff: noqa: ANN001, ANN202 - Triton's language has no types, and names shapes by letters
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, import-untyped"

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU build of torch: the torch versions below do the work
    triton = None


def collapse_torch(x: Tensor, pre: Tensor) -> Tensor:
    """X [N, 4, D], pre fp32 [N, 4] -> [N, D] in X's dtype."""
    return (pre.unsqueeze(-1) * x).sum(1).to(x.dtype)


def expand_torch(f: Tensor, x: Tensor, post: Tensor, mix: Tensor) -> Tensor:
    """F [N, D], X [N, 4, D], post fp32 [N, 4], mix fp32 [N, 4, 4] -> X' [N, 4, D]."""
    kept = torch.matmul(mix.to(x.dtype).transpose(-1, -2), x)
    return post.to(x.dtype).unsqueeze(-1) * f.unsqueeze(1) + kept


class Collapse(torch.autograd.Function):
    """`collapse_torch` as one kernel forward and one backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pre: Tensor) -> Tensor:
        """See `collapse_torch`."""
        x, pre = x.contiguous(), pre.contiguous()
        count, _, dim = x.shape
        y = torch.empty(count, dim, dtype=x.dtype, device=x.device)
        _collapse_forward[(triton.cdiv(count, 8),)](x, pre, y, count, D=dim, BLOCK=8)
        ctx.save_for_backward(x, pre)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and pre."""
        x, pre = ctx.saved_tensors
        dy = grads[0].contiguous()
        count, _, dim = x.shape
        dx, dpre = torch.empty_like(x), torch.empty_like(pre)
        _collapse_backward[(triton.cdiv(count, 8),)](x, pre, dy, dx, dpre, count, D=dim, BLOCK=8)
        return dx, dpre


class Expand(torch.autograd.Function):
    """`expand_torch` as one kernel forward and one backward."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, x: Tensor, post: Tensor, mix: Tensor) -> Tensor:
        """See `expand_torch`."""
        f, x, post, mix = f.contiguous(), x.contiguous(), post.contiguous(), mix.contiguous()
        y = torch.empty_like(x)
        count, dim = f.shape
        _expand_forward[(triton.cdiv(count, 8),)](f, x, post, mix, y, count, D=dim, BLOCK=8)
        ctx.save_for_backward(f, x, post, mix)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of f, x, post and mix."""
        f, x, post, mix = ctx.saved_tensors
        dy = grads[0].contiguous()
        count, dim = f.shape
        df, dx = torch.empty_like(f), torch.empty_like(x)
        dpost, dmix = torch.empty_like(post), torch.empty_like(mix)
        _expand_backward[(triton.cdiv(count, 4),)](
            f, x, post, mix, dy, df, dx, dpost, dmix, count, D=dim, BLOCK=4
        )
        return df, dx, dpost, dmix


if triton is not None:

    @triton.jit
    def _collapse_forward(X, PRE, Y, count, D: tl.constexpr, BLOCK: tl.constexpr):
        t = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        d = tl.arange(0, D)
        live = t < count
        cells = live[:, None] & (d < D)[None, :]
        y = tl.zeros([BLOCK, D], tl.float32)
        for k in tl.static_range(4):
            weight = tl.load(PRE + t * 4 + k, mask=live, other=0.0)
            x = tl.load(X + t[:, None] * (4 * D) + k * D + d[None, :], mask=cells, other=0.0)
            y += weight[:, None] * x.to(tl.float32)
        tl.store(Y + t[:, None] * D + d[None, :], y.to(Y.dtype.element_ty), mask=cells)

    @triton.jit
    def _collapse_backward(X, PRE, DY, DX, DPRE, count, D: tl.constexpr, BLOCK: tl.constexpr):
        t = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        d = tl.arange(0, D)
        live = t < count
        cells = live[:, None] & (d < D)[None, :]
        dy = tl.load(DY + t[:, None] * D + d[None, :], mask=cells, other=0.0).to(tl.float32)
        for k in tl.static_range(4):
            at = t[:, None] * (4 * D) + k * D + d[None, :]
            weight = tl.load(PRE + t * 4 + k, mask=live, other=0.0)
            x = tl.load(X + at, mask=cells, other=0.0).to(tl.float32)
            tl.store(DX + at, (weight[:, None] * dy).to(DX.dtype.element_ty), mask=cells)
            tl.store(DPRE + t * 4 + k, tl.sum(x * dy, axis=1), mask=live)

    @triton.jit
    def _expand_forward(F, X, POST, MIX, Y, count, D: tl.constexpr, BLOCK: tl.constexpr):
        t = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        d = tl.arange(0, D)
        live = t < count
        cells = live[:, None] & (d < D)[None, :]
        f = tl.load(F + t[:, None] * D + d[None, :], mask=cells, other=0.0).to(tl.float32)
        at = X + t[:, None] * (4 * D) + d[None, :]
        x0 = tl.load(at, mask=cells, other=0.0).to(tl.float32)
        x1 = tl.load(at + D, mask=cells, other=0.0).to(tl.float32)
        x2 = tl.load(at + 2 * D, mask=cells, other=0.0).to(tl.float32)
        x3 = tl.load(at + 3 * D, mask=cells, other=0.0).to(tl.float32)
        for k in tl.static_range(4):
            post = tl.load(POST + t * 4 + k, mask=live, other=0.0)
            m0 = tl.load(MIX + t * 16 + k, mask=live, other=0.0)
            m1 = tl.load(MIX + t * 16 + 4 + k, mask=live, other=0.0)
            m2 = tl.load(MIX + t * 16 + 8 + k, mask=live, other=0.0)
            m3 = tl.load(MIX + t * 16 + 12 + k, mask=live, other=0.0)
            y = post[:, None] * f + m0[:, None] * x0 + m1[:, None] * x1
            y += m2[:, None] * x2 + m3[:, None] * x3
            out = Y + t[:, None] * (4 * D) + k * D + d[None, :]
            tl.store(out, y.to(Y.dtype.element_ty), mask=cells)

    @triton.jit
    def _expand_backward(
        F, X, POST, MIX, DY, DF, DX, DPOST, DMIX, count, D: tl.constexpr, BLOCK: tl.constexpr
    ):
        t = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        d = tl.arange(0, D)
        live = t < count
        cells = live[:, None] & (d < D)[None, :]
        f = tl.load(F + t[:, None] * D + d[None, :], mask=cells, other=0.0).to(tl.float32)
        at = DY + t[:, None] * (4 * D) + d[None, :]
        y0 = tl.load(at, mask=cells, other=0.0).to(tl.float32)
        y1 = tl.load(at + D, mask=cells, other=0.0).to(tl.float32)
        y2 = tl.load(at + 2 * D, mask=cells, other=0.0).to(tl.float32)
        y3 = tl.load(at + 3 * D, mask=cells, other=0.0).to(tl.float32)
        p0 = tl.load(POST + t * 4, mask=live, other=0.0)
        p1 = tl.load(POST + t * 4 + 1, mask=live, other=0.0)
        p2 = tl.load(POST + t * 4 + 2, mask=live, other=0.0)
        p3 = tl.load(POST + t * 4 + 3, mask=live, other=0.0)
        df = p0[:, None] * y0 + p1[:, None] * y1 + p2[:, None] * y2 + p3[:, None] * y3
        tl.store(DF + t[:, None] * D + d[None, :], df.to(DF.dtype.element_ty), mask=cells)
        tl.store(DPOST + t * 4, tl.sum(y0 * f, axis=1), mask=live)
        tl.store(DPOST + t * 4 + 1, tl.sum(y1 * f, axis=1), mask=live)
        tl.store(DPOST + t * 4 + 2, tl.sum(y2 * f, axis=1), mask=live)
        tl.store(DPOST + t * 4 + 3, tl.sum(y3 * f, axis=1), mask=live)
        for j in tl.static_range(4):
            cell = t[:, None] * (4 * D) + j * D + d[None, :]
            x = tl.load(X + cell, mask=cells, other=0.0).to(tl.float32)
            row = t * 16 + j * 4
            m0 = tl.load(MIX + row, mask=live, other=0.0)
            m1 = tl.load(MIX + row + 1, mask=live, other=0.0)
            m2 = tl.load(MIX + row + 2, mask=live, other=0.0)
            m3 = tl.load(MIX + row + 3, mask=live, other=0.0)
            dx = m0[:, None] * y0 + m1[:, None] * y1 + m2[:, None] * y2 + m3[:, None] * y3
            tl.store(DX + cell, dx.to(DX.dtype.element_ty), mask=cells)
            tl.store(DMIX + row, tl.sum(x * y0, axis=1), mask=live)
            tl.store(DMIX + row + 1, tl.sum(x * y1, axis=1), mask=live)
            tl.store(DMIX + row + 2, tl.sum(x * y2, axis=1), mask=live)
            tl.store(DMIX + row + 3, tl.sum(x * y3, axis=1), mask=live)
