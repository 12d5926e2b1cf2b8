"""Rotary tables: cos and sin of every position, in fp32, for plain and for compressing layers."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from engine.architecture import RopeConfig


class RotaryTable(NamedTuple):
    """fp32 [max_position, R/2] each; row p holds the angles p * f_i."""

    cos: Tensor
    sin: Tensor


def inverse_frequencies(config: RopeConfig, rope_dim: int) -> Tensor:
    """Return f_i = theta^(-2i/R), i < R/2, blended by YaRN where the factor is not 1; fp32.

    The blend is static: it holds at every position, also below the original context length.
    """
    exponent = torch.arange(0, rope_dim, 2, dtype=torch.float32) / rope_dim
    plain = 1.0 / (config.theta**exponent)
    if config.factor == 1.0:
        return plain
    low = max(math.floor(_correction_dim(config.beta_fast, config, rope_dim)), 0)
    # The upper end is clamped by the rope width, not by half of it, as the original does.
    high = min(math.ceil(_correction_dim(config.beta_slow, config, rope_dim)), rope_dim - 1)
    span = high - low if high != low else 0.001
    ramp = ((torch.arange(rope_dim // 2, dtype=torch.float32) - low) / span).clamp(0, 1)
    return plain / config.factor * ramp + plain * (1 - ramp)


def _correction_dim(rotations: float, config: RopeConfig, rope_dim: int) -> float:
    """Channel pair whose wave makes that many rotations over the original context."""
    turns = config.original_max_position / (rotations * 2 * math.pi)
    return rope_dim * math.log(turns) / (2 * math.log(config.theta))


def rotary_table(
    config: RopeConfig, rope_dim: int, max_position: int, device: torch.device
) -> RotaryTable:
    """Compute the table on the host, so that every device rotates by the same bits."""
    frequencies = inverse_frequencies(config, rope_dim)
    angles = torch.arange(max_position, dtype=torch.float32)[:, None] * frequencies
    return RotaryTable(angles.cos().to(device), angles.sin().to(device))
