"""What every operation does with its arguments: refuse in words, and compute wide."""

from typing import NoReturn

import torch
from torch import Tensor


def refuse(name: str, got: object, accepted: str) -> NoReturn:
    """Raise ValueError with the argument's name, what came, and what is accepted."""
    raise ValueError(f"{name}: {got}; accepted: {accepted}")


def check_shape(name: str, tensor: Tensor, *shape: int) -> None:
    """Refuse a tensor of another shape; -1 stands for any length."""
    fits = tensor.dim() == len(shape) and all(
        wanted in (-1, size) for size, wanted in zip(tensor.shape, shape, strict=True)
    )
    if not fits:
        wanted_text = ", ".join("any" if size == -1 else str(size) for size in shape)
        refuse(name, f"shape {tuple(tensor.shape)}", f"({wanted_text})")


def wide(x: Tensor) -> Tensor:
    """float64 stays float64, everything else is computed in float32."""
    return x if x.dtype is torch.float64 else x.float()
