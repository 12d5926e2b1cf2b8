"""Elementwise comparison of a tensor with the truth."""

from typing import NamedTuple

import torch
from torch import Tensor

SMALL_ROW = 1e-3
"""Rows with smaller values than this share of the largest are held to that share."""
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Comparison(NamedTuple):
    """How far a tensor is from the truth. Rows are its first dimension."""

    equal: bool
    """Same bits."""
    mask_differences: int
    """Positions where one is NaN or infinite and the other is not the same."""
    max_abs: float
    relative: float
    """Norm of the difference over norm of the truth."""
    cosine_difference: float
    """1 - 2xy / (x^2 + y^2), in float64."""
    worst_row: float
    """Largest of: max abs error of a row over the largest truth in it."""
    worst_at: int
    worst_head: float
    """The same by the second dimension of a tensor of three or more; else `worst_row`."""
    scale: float
    """Largest finite truth."""


def compare(candidate: Tensor, truth: Tensor) -> Comparison:
    """Compare in float64, masks of NaN and Inf first.

    Raises: ValueError: the shapes differ.
    """
    if candidate.shape != truth.shape:
        raise ValueError(
            f"candidate: shape {list(candidate.shape)}; accepted: {list(truth.shape)}, the truth's"
        )
    x, y = candidate.detach().double().cpu(), truth.detach().double().cpu()
    if x.dim() == 0:
        x, y = x[None], y[None]
    finite = x.isfinite() & y.isfinite()
    masks = ~(finite | (x == y) | (x.isnan() & y.isnan()))
    x, y = torch.where(finite, x, 0.0), torch.where(finite, y, 0.0)
    difference = (x - y).abs()
    scale = float(y.abs().max()) if y.numel() else 0.0
    rows = _shares(difference.flatten(1), y.flatten(1), scale) if x.dim() > 1 else difference
    heads = rows
    if x.dim() > 2:
        heads = _shares(difference.transpose(0, 1).flatten(1), y.transpose(0, 1).flatten(1), scale)
    squares = float((x * x + y * y).sum())
    return Comparison(
        equal=same_bits(candidate, truth),
        mask_differences=int(masks.sum()),
        max_abs=float(difference.max()) if x.numel() else 0.0,
        relative=float(difference.norm() / y.norm().clamp(min=1e-300)),
        cosine_difference=1.0 - 2.0 * float((x * y).sum()) / squares if squares else 0.0,
        worst_row=float(rows.max()) if rows.numel() else 0.0,
        worst_at=int(rows.argmax()) if rows.numel() else -1,
        worst_head=float(heads.max()) if heads.numel() else 0.0,
        scale=scale,
    )


def _shares(difference: Tensor, truth: Tensor, scale: float) -> Tensor:
    """Error of each row over its largest truth."""
    if not difference.shape[1]:
        return difference.new_zeros(difference.shape[0])
    size = truth.abs().amax(1).clamp(min=max(scale * SMALL_ROW, 1e-300))
    return difference.amax(1) / size


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bits; NaN equals NaN of the same bits, and -0 is not 0."""
    if a.dtype is not b.dtype or a.shape != b.shape:
        return False
    raw = _RAW[a.element_size()]
    a, b = (x.detach().cpu().contiguous().view(raw) for x in (a, b))
    return bool(torch.equal(a, b))
