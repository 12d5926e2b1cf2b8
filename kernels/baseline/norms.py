"""RMS norm, rotary embedding of adjacent pairs, and the two in one pass."""

import torch
from torch import Tensor

from kernels.checks import check_rope_dim, check_shape


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Return x * rsqrt(mean(x^2) + eps) * weight over the last dimension, in fp32, cast once.

    Args:
        x: any float dtype [..., D].
        weight: [D], or None for the unweighted norm.
        eps: added to the mean square.


    Returns: like x.
    """
    if weight is not None:
        check_shape("weight", weight, x.shape[-1])
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide if weight is None else wide * weight.float()).to(x.dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor, *, rope_dim: int, inverse: bool = False) -> Tensor:
    """Rotate adjacent channel pairs (2i, 2i + 1) of the last `rope_dim` channels of each head.

    Args:
        x: [T, N, D]; not changed.
        cos: fp32 [T, rope_dim / 2], the row of each token's position.
        sin: the same.
        rope_dim: rotated channels, an even number.
        inverse: rotate by the negative angle.


    Returns: like x.
    """
    check_rope_dim(rope_dim, x.shape[-1])
    check_shape("cos", cos, x.shape[0], rope_dim // 2)
    check_shape("sin", sin, x.shape[0], rope_dim // 2)
    still, turned = x[..., : x.shape[-1] - rope_dim], x[..., x.shape[-1] - rope_dim :].float()
    even, odd = turned[..., 0::2], turned[..., 1::2]
    cos, sin = cos[:, None].float(), sin[:, None].float()
    if inverse:
        sin = -sin
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    return torch.cat((still, turned.to(x.dtype)), dim=-1)


def norm_rope(
    x: Tensor, weight: Tensor | None, cos: Tensor, sin: Tensor, *, eps: float, rope_dim: int
) -> Tensor:
    """`rms_norm` over each head's channels, then `rope`; x is [T, N, D]."""
    return rope(rms_norm(x, weight, eps), cos, sin, rope_dim=rope_dim)
