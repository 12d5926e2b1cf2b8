"""Hadamard rotation of index queries and keys.

Orthonormal, so that without rounding it changes no score; it spreads an outlier channel over all.
"""

import torch
from torch import Tensor

from reference.arguments import refuse, wide


def hadamard_matrix(dim: int) -> Tensor:
    """Sylvester's matrix divided by sqrt(dim), float64 [dim, dim]; symmetric, its own inverse.

    Raises: ValueError: dim is no power of two.
    """
    if dim < 1 or dim & (dim - 1):
        refuse("dim", dim, "a power of two")
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < dim:
        top, bottom = torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)
        matrix = torch.cat((top, bottom))
    norm: float = dim**0.5
    return matrix / norm


def hadamard_rotate(x: Tensor) -> Tensor:
    """Multiply x [..., dim] by the matrix, in float64; the result has x's wide type."""
    x = wide(x)
    return (x.double() @ hadamard_matrix(x.shape[-1]).to(x.device)).to(x.dtype)
