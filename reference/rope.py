"""Rotary embedding of adjacent channel pairs at the end of a head.

V4 has two sets of frequencies: plain (theta 10000) in layers that see the window only, and YaRN
(theta 160000, factor 16) for everything in a layer that compresses. YaRN is static: it holds at
every position, also below the original context length. No mscale anywhere.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from reference.arguments import check_shape, refuse, wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """Slow channels are divided by `factor`, fast ones stay, a ramp lies between."""

    factor: float
    original_max_position: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0


def frequencies(theta: float, rope_dim: int, yarn: Yarn | None = None) -> Tensor:
    """f_i = theta^(-2i/R) for i < R/2, float64 [R/2], blended by YaRN if given.

    Raises: ValueError: R is not a positive even number, or theta is not above 1.
    """
    if rope_dim < 2 or rope_dim % 2:
        refuse("rope_dim", rope_dim, "a positive even number")
    if theta <= 1:
        refuse("theta", theta, "above 1")
    i = torch.arange(rope_dim // 2, dtype=torch.float64)
    plain = theta ** (-2 * i / rope_dim)
    if yarn is None:
        return plain
    low = max(math.floor(_pair_of(yarn.beta_fast, theta, rope_dim, yarn)), 0)
    # R - 1 and not R/2 - 1: so it is in the published code.
    high: float = min(math.ceil(_pair_of(yarn.beta_slow, theta, rope_dim, yarn)), rope_dim - 1)
    if high == low:
        high += 0.001
    ramp = ((i - low) / (high - low)).clamp(0, 1)
    return plain / yarn.factor * ramp + plain * (1 - ramp)


def _pair_of(turns: float, theta: float, rope_dim: int, yarn: Yarn) -> float:
    """Index of the pair that turns that many times over the original context."""
    wavelength = yarn.original_max_position / (2 * math.pi * turns)
    return rope_dim * math.log(wavelength) / (2 * math.log(theta))


def rotate(x: Tensor, positions: Tensor, freqs: Tensor, *, inverse: bool = False) -> Tensor:
    """Turn each pair (2i, 2i + 1) of the last R channels by position * f_i.

    Args:
        x: [T, ..., D], D >= R.
        positions: int [T].
        freqs: float64 [R/2], of `frequencies`.
        inverse: turn back, as attention does with its output.

    Returns: like x, float32 or float64; the angles are float64 in both cases.
    """
    x = wide(x)
    check_shape("positions", positions, x.shape[0])
    rope_dim = 2 * freqs.numel()
    if x.shape[-1] < rope_dim:
        refuse("x", f"{x.shape[-1]} channels", f"at least the {rope_dim} rotated ones")
    angle = positions.double()[:, None] * freqs.to(positions.device) * (-1 if inverse else 1)
    angle = angle.view(x.shape[0], *(1,) * (x.dim() - 2), freqs.numel())
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    still, turned = x[..., : x.shape[-1] - rope_dim], x[..., x.shape[-1] - rope_dim :]
    even, odd = turned[..., 0::2], turned[..., 1::2]
    pairs = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return torch.cat((still, pairs.flatten(-2)), dim=-1)
