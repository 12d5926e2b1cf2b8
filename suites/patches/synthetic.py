"""Synthetic inputs with structure: uniform noise lets truncated and constant kernels pass."""

from collections.abc import Iterator

import torch
from torch import Tensor

OUTLIER = 64.0


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal values."""
    return torch.randn(*shape, generator=generator)


def bf16(x: Tensor) -> Tensor:
    """Values that bf16 holds exactly, as float32."""
    return x.bfloat16().float()


def structured(
    generator: torch.Generator, rows: int, channels: int
) -> Iterator[tuple[str, Tensor]]:
    """(name, [rows, channels]): noise, an outlier channel, sparse rows, ties, sizes, zeros."""
    yield "noise", normal(generator, rows, channels)
    outlier = normal(generator, rows, channels)
    outlier[:, channels // 3] *= OUTLIER
    yield "an outlier channel", outlier
    sparse = normal(generator, rows, channels)
    kept = torch.rand(rows, channels, generator=generator) < 0.05
    kept[:, 0] = True
    yield "sparse rows", sparse * kept
    ties = normal(generator, (rows + 3) // 4, channels).repeat_interleave(4, 0)[:rows]
    yield "equal rows", ties.contiguous()
    sizes = torch.logspace(-3, 3, rows)[torch.randperm(rows, generator=generator)]
    yield "rows of all sizes", normal(generator, rows, channels) * sizes[:, None]
    zeros = normal(generator, rows, channels)
    zeros[rows // 2] = 0
    yield "a row of zeros", zeros


def head(generator: torch.Generator, vocabulary: int, channels: int) -> Tensor:
    """Unembedding [V, channels] for logits of standard deviation 2 over normalised streams."""
    deviation: float = 2.0 / channels**0.5
    return normal(generator, vocabulary, channels) * deviation


def rms(x: Tensor) -> Tensor:
    """Rows of unit mean square."""
    scaled: Tensor = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return scaled
