"""What every Triton kernel here needs of its host side."""

from typing import Any

import torch
from torch import Tensor
from triton.runtime import JITFunction

from kernels.checks import refuse


def is_interpreted(kernel: Any) -> bool:
    """Whether Triton interprets this kernel on the CPU.

    The interpreter's `tl.dot` of bf16 operands is silently wrong by orders of magnitude (triton
    3.9.0; a test pins it), so kernels cast to fp32 before the product where this is true: the
    products of bf16 values are exact in fp32.
    """
    return not isinstance(kernel, JITFunction)


def check_device(argument: str, tensor: Tensor, kernel: Any) -> None:
    """A compiled kernel reads CUDA memory only, an interpreted one CPU memory only."""
    wanted = "cpu" if is_interpreted(kernel) else "cuda"
    if tensor.device.type != wanted:
        refuse(argument, f"a tensor on {tensor.device}", f"one on {wanted}")


def next_power_of_2(n: int) -> int:
    """The smallest power of two >= n."""
    return 1 << max(0, n - 1).bit_length()


TORCH_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
