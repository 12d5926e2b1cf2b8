"""Matrix products with weights: plain, and the grouped output projection of attention."""

import torch
from torch import Tensor

from kernels.checks import check_shape, refuse


def linear(x: Tensor, w: Tensor) -> Tensor:
    """Return x @ w.T for x [..., K] and w [N, K]; returns [..., N] in x's dtype."""
    check_shape("w", w, -1, x.shape[-1])
    return torch.nn.functional.linear(x, w)


def grouped_output(o: Tensor, wo_a: Tensor, wo_b: Tensor, *, groups: int) -> Tensor:
    """Each group of heads through its own low-rank matrix, then all through one.

    Args:
        o: [T, Hq * D], heads of a group adjacent.
        wo_a: [groups * rank, Hq * D / groups].
        wo_b: [H, groups * rank].
        groups: a divisor of the heads.


    Returns: [T, H] in o's dtype.
    """
    tokens, width = o.shape
    if width % groups or wo_a.shape[0] % groups:
        refuse("groups", groups, f"a divisor of {width} channels and of {wo_a.shape[0]} rows")
    rank = wo_a.shape[0] // groups
    check_shape("wo_a", wo_a, groups * rank, width // groups)
    check_shape("wo_b", wo_b, -1, groups * rank)
    parts = o.view(tokens, groups, -1).transpose(0, 1)
    z = torch.bmm(parts, wo_a.view(groups, rank, -1).transpose(1, 2))
    return torch.nn.functional.linear(z.transpose(0, 1).reshape(tokens, -1), wo_b)
