"""Refusals in one form: which argument, what came, what is accepted."""

import math
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


def sizes(argument: str, tensor: Tensor, dims: int) -> torch.Size:
    """The shape, of so many dimensions."""
    shape = tensor.shape
    if len(shape) != dims:
        refuse(argument, f"shape {list(shape)}", f"{dims} dimensions")
    return shape


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


def check_real(argument: str, tensor: Tensor) -> None:
    """Refuse integers where numbers are multiplied or compared: they would be cut or cast."""
    if not tensor.dtype.is_floating_point:
        refuse(argument, tensor.dtype, "a floating dtype")


def check_whole(argument: str, value: object, accepted: str, *, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`; `accepted` says it in words."""
    if type(value) is not int or value < least:
        refuse(argument, value, accepted)


def check_rate(m: int | None, page_size: int) -> None:
    """Tokens of an entry: a page holds whole entries."""
    if type(m) is not int or m < 1 or page_size % m:
        refuse("m", m, f"a divisor of page_size = {page_size}")


def check_limit(limit: float | None) -> None:
    """Refuse a clamp at NaN: each comparison with it is false, so that nothing would be clamped."""
    if limit is not None and (not isinstance(limit, (int, float)) or math.isnan(limit)):
        refuse("limit", limit, "a number, or None for no clamp")


def check_positive(argument: str, value: float) -> None:
    """Refuse a factor that is not a finite number above zero."""
    if not 0 < value < float("inf"):
        refuse(argument, value, "a finite number > 0")


def check_range(argument: str, tensor: Tensor, low: int, high: int) -> None:
    """Refuse integers outside low .. high, on the CPU: elsewhere a look would wait for the device.

    There `assert_patch` and the CPU's run of the same ops see them.
    """
    if not tensor.is_cpu or not tensor.numel():
        return
    least, most = (int(value) for value in torch.aminmax(tensor))
    if least < low or most > high:
        refuse(argument, least if least < low else most, f"{low}..{high}")


def check_no_nan(argument: str, tensor: Tensor) -> None:
    """Refuse NaN where it would decide what is chosen; on the CPU, as `check_range`."""
    if tensor.is_cpu and bool(tensor.isnan().any()):
        refuse(argument, "NaN", "numbers")


def check_contiguous(argument: str, tensor: Tensor) -> None:
    """Refuse a view of a pool: a kernel reads it by row numbers, and a copy would be too dear."""
    if not tensor.is_contiguous():
        refuse(argument, f"strides {list(tensor.stride())}", "a contiguous tensor")


def check_finite_eps(argument: str, value: float) -> None:
    """Refuse an epsilon that is negative, infinite or NaN."""
    if not 0 <= value < float("inf"):
        refuse(argument, value, "a finite number >= 0")
