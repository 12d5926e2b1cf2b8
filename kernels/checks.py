"""Refusals in one form: which argument, what came, what is accepted."""

from typing import NoReturn

import torch
from torch import Tensor


def refuse(argument: str, came: object, accepted: object) -> NoReturn:
    """Raise the ValueError that every op uses."""
    raise ValueError(f"{argument}: got {came}; accepted: {accepted}")


def check_shape(argument: str, tensor: Tensor, *want: int) -> None:
    """Refuse another shape; -1 stands for any size."""
    shape = tensor.shape
    if shape == want:
        return
    if len(shape) != len(want) or any(w not in (-1, s) for s, w in zip(shape, want, strict=True)):
        refuse(argument, f"shape {list(shape)}", f"shape {['any' if w < 0 else w for w in want]}")


def check_int32(argument: str, tensor: Tensor, *want: int) -> None:
    """Refuse another dtype or shape."""
    if tensor.dtype is not torch.int32:
        refuse(argument, tensor.dtype, torch.int32)
    check_shape(argument, tensor, *want)


def check_rope_dim(rope_dim: int, head_dim: int) -> None:
    """Rotated channels come in adjacent pairs at the end of the head."""
    if rope_dim % 2 or not 0 <= rope_dim <= head_dim:
        refuse("rope_dim", rope_dim, f"an even number of channels from 0 to head_dim = {head_dim}")


def check_float(argument: str, tensor: Tensor, *, like: Tensor | None = None) -> None:
    """Refuse what is not fp32, bf16 or fp16, or lies on another device than `like`."""
    if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        refuse(argument, tensor.dtype, "float32, bfloat16, float16")
    if like is not None and tensor.device != like.device:
        refuse(argument, f"a tensor on {tensor.device}", f"one on {like.device}, as the others")


def check_contiguous(argument: str, tensor: Tensor) -> None:
    """Refuse a view of a pool: a kernel reads it by row numbers, and a copy would be too dear."""
    if not tensor.is_contiguous():
        refuse(argument, f"strides {list(tensor.stride())}", "a contiguous tensor")


def check_finite_eps(argument: str, value: float) -> None:
    """Refuse an epsilon that is negative, infinite or NaN."""
    if not 0 <= value < float("inf"):
        refuse(argument, value, "a finite number >= 0")
