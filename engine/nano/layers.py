"""Small pieces of the forward: norms, rotation, pooling of windows."""

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the last dim, computed in fp32, in x's dtype."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (weight * (wide * scale)).to(x.dtype)


def unit_norm(x: Tensor, eps: float, scale: float) -> Tensor:
    """RMS norm without weights, times `scale`."""
    size = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps) * scale
    return x * size.to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate adjacent pairs of the last 2 * cos.shape[-1] channels."""
    rope_dim = 2 * cos.shape[-1]
    still, turned = x[..., :-rope_dim], x[..., -rope_dim:].float()
    even, odd = turned[..., 0::2], turned[..., 1::2]
    pairs = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1)
    return torch.cat([still, pairs.flatten(-2).to(x.dtype)], -1)


def pool_windows(kv: Tensor, gate: Tensor, *, overlap: bool) -> Tensor:
    """Windows [B, n, m, C] -> entries [B, n, D] by a softmax over slots, channel by channel.

    With `overlap`, C = 2D: the first half of a window's channels feeds the next window's entry.
    """
    if overlap:
        dim = kv.shape[-1] // 2
        before = (0, 0, 0, 0, 1, 0)
        kv = torch.cat([functional.pad(kv[:, :-1, :, :dim], before), kv[..., dim:]], 2)
        earlier = functional.pad(gate[:, :-1, :, :dim], before, value=float("-inf"))
        gate = torch.cat([earlier, gate[..., dim:]], 2)
    return (kv * gate.softmax(2).to(kv.dtype)).sum(2)
