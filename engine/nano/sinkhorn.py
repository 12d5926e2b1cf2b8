"""Sinkhorn normalisation of the 4x4 stream mixers, with a cheap gradient.

The forward is the model's own iteration. The backward does not walk back through it: at the end the
matrix is doubly stochastic up to rounding, so its gradient solves two small linear equations
(implicit differentiation), found by the same kind of alternation.
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

has_triton = triton is not None
_BLOCK = 128


def sinkhorn_torch(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """fp32 [N, 4, 4] -> row softmax, then alternating column and row sums; ends on columns."""
    mix = torch.softmax(logits, -1) + eps
    mix = mix / (mix.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        mix = mix / (mix.sum(-1, keepdim=True) + eps)
        mix = mix / (mix.sum(-2, keepdim=True) + eps)
    return mix


def sinkhorn_gradient_torch(mix: Tensor, grad: Tensor, iterations: int) -> Tensor:
    """Gradient at the logits, from the gradient at the doubly stochastic `mix`."""
    weighted = mix * grad
    rows, columns = weighted.sum(-1), weighted.sum(-2)
    u = rows
    v = columns - (mix * u.unsqueeze(-1)).sum(-2)
    for _ in range(iterations):
        u = rows - (mix * v.unsqueeze(-2)).sum(-1)
        v = columns - (mix * u.unsqueeze(-1)).sum(-2)
    return weighted - mix * (u.unsqueeze(-1) + v.unsqueeze(-2))


class Sinkhorn(torch.autograd.Function):
    """`Sinkhorn.apply(logits, iterations, eps, fused)`; fused runs the Triton kernels."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, iterations: int, eps: float, fused: bool) -> Tensor:
        """See `sinkhorn_torch`."""
        if fused:
            logits = logits.contiguous()
            mix = torch.empty_like(logits)
            count = logits.shape[0]
            grid = (triton.cdiv(count, _BLOCK),)
            _forward_kernel[grid](logits, mix, count, eps, ITERATIONS=iterations, BLOCK=_BLOCK)
        else:
            mix = sinkhorn_torch(logits, iterations, eps)
        ctx.save_for_backward(mix)
        ctx.iterations, ctx.fused = iterations, fused
        return mix

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """See `sinkhorn_gradient_torch`."""
        (mix,) = ctx.saved_tensors
        grad = grads[0].contiguous()
        if not ctx.fused:
            return sinkhorn_gradient_torch(mix, grad, ctx.iterations), None, None, None
        out = torch.empty_like(mix)
        count = mix.shape[0]
        grid = (triton.cdiv(count, _BLOCK),)
        _backward_kernel[grid](mix, grad, out, count, ITERATIONS=ctx.iterations, BLOCK=_BLOCK)
        return out, None, None, None


if triton is not None:

    @triton.jit
    def _forward_kernel(LOGITS, MIX, count, eps, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):
        n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        at = n[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        live = (n < count)[:, None, None] & (i[None, :, None] < 4) & (i[None, None, :] < 4)
        x = tl.load(LOGITS + at, mask=live, other=0.0)
        y = tl.exp(x - tl.max(x, axis=2)[:, :, None])
        y = y / tl.sum(y, axis=2)[:, :, None] + eps
        y = y / (tl.sum(y, axis=1)[:, None, :] + eps)
        for _ in range(ITERATIONS - 1):
            y = y / (tl.sum(y, axis=2)[:, :, None] + eps)
            y = y / (tl.sum(y, axis=1)[:, None, :] + eps)
        tl.store(MIX + at, y, mask=live)

    @triton.jit
    def _backward_kernel(MIX, GRAD, OUT, count, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):
        n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        at = n[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        live = (n < count)[:, None, None] & (i[None, :, None] < 4) & (i[None, None, :] < 4)
        p = tl.load(MIX + at, mask=live, other=0.0)
        weighted = p * tl.load(GRAD + at, mask=live, other=0.0)
        rows = tl.sum(weighted, axis=2)
        columns = tl.sum(weighted, axis=1)
        u = rows
        v = columns - tl.sum(p * u[:, :, None], axis=1)
        for _ in range(ITERATIONS):
            u = rows - tl.sum(p * v[:, None, :], axis=2)
            v = columns - tl.sum(p * u[:, :, None], axis=1)
        tl.store(OUT + at, weighted - p * (u[:, :, None] + v[:, None, :]), mask=live)
