"""RMS norm, its weight and the rotation of the last channels, in one pass forward and one backward.

`norm_rotate_torch` is the definition; the Triton version computes the same in fp32 inside and is
checked against it before a run uses it.
"""
# ruff: noqa: ANN001, ANN202 - Triton's language has no types, and names shapes by letters
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, import-untyped"

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.nano.layers import rms_norm, rotate, unit_norm

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU build of torch: the torch version does the work
    triton = None

_BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is done to rows of x [..., heads, D].

    eps: of the norm, or None for no norm. scale: multiplied into a norm without weight.
    heads: consecutive rows that share a position. inverse: rotate backwards.
    """

    eps: float | None = None
    scale: float = 1.0
    heads: int = 1
    inverse: bool = False


def norm_rotate_torch(
    x: Tensor, weight: Tensor | None, cos: Tensor | None, sin: Tensor | None, shape: Shape
) -> Tensor:
    """X [B, T, (heads,) D]; cos and sin fp32 [T, R/2] or [B, T, R/2], None for no rotation."""
    if shape.eps is not None:
        if weight is None:
            x = unit_norm(x, shape.eps, shape.scale)
        else:
            x = rms_norm(x, weight, shape.eps)
    if cos is None or sin is None:
        return x
    if shape.heads > 1:
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return rotate(x, cos, -sin if shape.inverse else sin)


class NormRotate(torch.autograd.Function):
    """`norm_rotate_torch`, fused; cos and sin get no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        cos: Tensor | None,
        sin: Tensor | None,
        shape: Shape,
    ) -> Tensor:
        """See `norm_rotate_torch`."""
        x = x.contiguous()
        y = torch.empty_like(x)
        turns = _Turns.of(x, cos, sin, shape)
        grid = (triton.cdiv(turns.rows, _BLOCK),)
        _forward_kernel[grid](
            x, turns.weight(weight), turns.cos, turns.sin, y, **turns.arguments(weight)
        )
        ctx.save_for_backward(x, weight, cos, sin)
        ctx.shape = shape
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        """Gradients of x and weight."""
        x, weight, cos, sin = ctx.saved_tensors
        dy = grads[0].contiguous()
        dx = torch.empty_like(x)
        turns = _Turns.of(x, cos, sin, ctx.shape)
        programs = triton.cdiv(turns.rows, _BLOCK)
        partial = torch.empty(programs, x.shape[-1], device=x.device) if weight is not None else dx
        _backward_kernel[(programs,)](
            x,
            turns.weight(weight),
            turns.cos,
            turns.sin,
            dy,
            dx,
            partial,
            **turns.arguments(weight),
        )
        return dx, partial.sum(0) if weight is not None else None, None, None, None


@dataclass(frozen=True, slots=True)
class _Turns:
    x: Tensor
    cos: Tensor
    sin: Tensor
    rope_dim: int
    rows: int
    shape: Shape

    @classmethod
    def of(cls, x: Tensor, cos: Tensor | None, sin: Tensor | None, shape: Shape) -> "_Turns":
        rows = x.numel() // x.shape[-1]
        if cos is None or sin is None:
            return cls(x, x, x, 0, rows, shape)
        return cls(x, cos.contiguous(), sin.contiguous(), 2 * cos.shape[-1], rows, shape)

    def weight(self, weight: Tensor | None) -> Tensor:
        return self.x if weight is None else weight

    def arguments(self, weight: Tensor | None) -> dict[str, Any]:
        positions = self.cos.numel() // (self.rope_dim // 2) if self.rope_dim else 1
        return {
            "rows": self.rows,
            "positions": positions,
            "eps": self.shape.eps or 0.0,
            "scale": self.shape.scale,
            "sign": -1.0 if self.shape.inverse else 1.0,
            "HEADS": self.shape.heads,
            "D": self.x.shape[-1],
            "R": self.rope_dim,
            "NORM": self.shape.eps is not None,
            "WEIGHT": weight is not None,
            "BLOCK": _BLOCK,
        }


if triton is not None:

    @triton.jit
    def _angles(
        COS, SIN, r, d, live, positions, sign, HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr
    ):
        """Cos and signed sin [BLOCK, D]: y[d] = x[d] cos + x[d ^ 1] sin."""
        turned = live[:, None] & (d >= D - R)[None, :]
        at = ((r // HEADS) % positions)[:, None] * (R // 2) + ((d - (D - R)) // 2)[None, :]
        cos = tl.load(COS + at, mask=turned, other=1.0)
        sin = tl.load(SIN + at, mask=turned, other=0.0)
        side = tl.where(d % 2 == 0, -1.0, 1.0)
        return cos, sin * side[None, :] * sign

    @triton.jit
    def _forward_kernel(
        X, W, COS, SIN, Y, rows, positions, eps, scale, sign,
        HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
        NORM: tl.constexpr, WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        r = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        d = tl.arange(0, D)
        live = r < rows
        cells = live[:, None] & (d < D)[None, :]
        x = tl.load(X + r[:, None] * D + d[None, :], mask=cells, other=0.0).to(tl.float32)
        if NORM:
            u = tl.rsqrt(tl.sum(x * x, axis=1) / D + eps) * scale
            x = x * u[:, None]
        if WEIGHT:
            x = x * tl.load(W + d)[None, :]
        if R > 0:
            cos, sin = _angles(COS, SIN, r, d, live, positions, sign, HEADS, D, R)
            other = tl.load(X + r[:, None] * D + (d ^ 1)[None, :], mask=cells, other=0.0)
            other = other.to(tl.float32)
            if NORM:
                other = other * u[:, None]
            if WEIGHT:
                other = other * tl.load(W + (d ^ 1))[None, :]
            x = x * cos + other * sin
        tl.store(Y + r[:, None] * D + d[None, :], x.to(Y.dtype.element_ty), mask=cells)

    @triton.jit
    def _backward_kernel(
        X, W, COS, SIN, DY, DX, DW, rows, positions, eps, scale, sign,
        HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
        NORM: tl.constexpr, WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        r = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        d = tl.arange(0, D)
        live = r < rows
        cells = live[:, None] & (d < D)[None, :]
        at = r[:, None] * D + d[None, :]
        g = tl.load(DY + at, mask=cells, other=0.0).to(tl.float32)
        if R > 0:
            cos, sin = _angles(COS, SIN, r, d, live, positions, -sign, HEADS, D, R)
            other = tl.load(DY + r[:, None] * D + (d ^ 1)[None, :], mask=cells, other=0.0)
            g = g * cos + other.to(tl.float32) * sin
        if NORM:
            x = tl.load(X + at, mask=cells, other=0.0).to(tl.float32)
            v = tl.rsqrt(tl.sum(x * x, axis=1) / D + eps)
            if WEIGHT:
                dw = tl.sum(g * x * (v * scale)[:, None], axis=0)
                tl.store(DW + tl.program_id(0) * D + d, dw)
                g = g * tl.load(W + d)[None, :]
            pull = tl.sum(g * x, axis=1) / D * v * v
            g = (g - x * pull[:, None]) * (v * scale)[:, None]
        tl.store(DX + at, g.to(DX.dtype.element_ty), mask=cells)
