"""The stream-mixing projection: an RMS over all streams and a small matrix, in one pass."""
# ruff: noqa: ANN001, ANN202 - Triton's language has no types, and names shapes by letters
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

_BLOCK = 32
_COLUMNS = 32  # the matrix has 24 rows, or 4 at the head


def project_torch(flat: Tensor, fn: Tensor, eps: float) -> Tensor:
    """Streams [N, nH] (any float), fn fp32 [rows, nH] -> fp32 [N, rows] of the normed streams."""
    wide = flat.float()
    return functional.linear(wide, fn) * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)


class Project(torch.autograd.Function):
    """`project_torch` for bf16 streams; products in tf32, the matrix's gradient in bf16."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, fn: Tensor, eps: float) -> Tensor:
        """See `project_torch`."""
        count, width = flat.shape
        rows = fn.shape[0]
        out = torch.empty(count, rows, device=flat.device)
        size = torch.empty(count, device=flat.device)
        _forward_kernel[(triton.cdiv(count, _BLOCK),)](
            flat, fn, out, size, count, eps, WIDTH=width, ROWS=rows, C=_COLUMNS, BLOCK=_BLOCK, K=128
        )
        ctx.save_for_backward(flat, fn, out, size)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients of the streams and of fn."""
        flat, fn, out, size = ctx.saved_tensors
        grad = grads[0].contiguous()
        count, width = flat.shape
        dflat = torch.empty_like(flat)
        _backward_kernel[(triton.cdiv(count, _BLOCK),)](
            flat, fn, out, size, grad, dflat, count,
            WIDTH=width, ROWS=fn.shape[0], C=_COLUMNS, BLOCK=_BLOCK, K=128,
        )  # fmt: skip
        scaled = (grad * size[:, None]).to(flat.dtype)
        return dflat, (scaled.t() @ flat).float(), None


if triton is not None:

    @triton.jit
    def _forward_kernel(
        X, FN, OUT, SIZE, count, eps,
        WIDTH: tl.constexpr, ROWS: tl.constexpr, C: tl.constexpr,
        BLOCK: tl.constexpr, K: tl.constexpr,
    ):  # fmt: skip
        t = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        c, k = tl.arange(0, C), tl.arange(0, K)
        live = t < count
        sums = tl.zeros([BLOCK, C], tl.float32)
        squares = tl.zeros([BLOCK], tl.float32)
        for a in range(0, WIDTH, K):
            x = tl.load(X + t[:, None] * WIDTH + (a + k)[None, :], mask=live[:, None], other=0.0)
            x = x.to(tl.float32)
            f = tl.load(
                FN + c[None, :] * WIDTH + (a + k)[:, None], mask=(c < ROWS)[None, :], other=0.0
            )
            sums += tl.dot(x, f)
            squares += tl.sum(x * x, axis=1)
        size = tl.rsqrt(squares / WIDTH + eps)
        tl.store(SIZE + t, size, mask=live)
        cells = live[:, None] & (c < ROWS)[None, :]
        tl.store(OUT + t[:, None] * ROWS + c[None, :], sums * size[:, None], mask=cells)

    @triton.jit
    def _backward_kernel(
        X, FN, OUT, SIZE, GRAD, DX, count,
        WIDTH: tl.constexpr, ROWS: tl.constexpr, C: tl.constexpr,
        BLOCK: tl.constexpr, K: tl.constexpr,
    ):  # fmt: skip
        t = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        c, k = tl.arange(0, C), tl.arange(0, K)
        live = t < count
        cells = live[:, None] & (c < ROWS)[None, :]
        at = t[:, None] * ROWS + c[None, :]
        grad = tl.load(GRAD + at, mask=cells, other=0.0)
        out = tl.load(OUT + at, mask=cells, other=0.0)
        size = tl.load(SIZE + t, mask=live, other=0.0)
        pull = tl.sum(grad * out, axis=1) * size * size / WIDTH
        grad = grad * size[:, None]
        for a in range(0, WIDTH, K):
            f = tl.load(
                FN + c[:, None] * WIDTH + (a + k)[None, :], mask=(c < ROWS)[:, None], other=0.0
            )
            place = t[:, None] * WIDTH + (a + k)[None, :]
            x = tl.load(X + place, mask=live[:, None], other=0.0).to(tl.float32)
            dx = tl.dot(grad, f) - x * pull[:, None]
            tl.store(DX + place, dx.to(DX.dtype.element_ty), mask=live[:, None])
