"""Truth for the patch `fp8_kv`: attention over rows that are kept in e4m3 with block scales.

As DeepSeek-V4 keeps them: the unrotated channels in e4m3, one power-of-two scale a block of 64; the
rotated tail in bf16.
"""

import torch
from torch import Tensor

from reference.attention import sparse_attention
from reference.formats import round_fp8
from reference.grids import round_bf16

__all__ = ["round_kv_rows", "sparse_attention"]


def round_kv_rows(rows: Tensor, *, rope_dim: int, block: int = 64, scale: str = "e8m0") -> Tensor:
    """What is read back of stored rows [N, D], float32.

    Args:
        rows: window rows or compressed entries, rotated.
        rope_dim: channels of the tail that stays bf16.
        block: channels of one scale; a divisor of D - rope_dim.
        scale: "e8m0" or "fp32".
    """
    plain = rows.shape[1] - rope_dim
    head = round_fp8(rows[:, :plain], block=block, scale=scale)
    return torch.cat((head, round_bf16(rows[:, plain:])), dim=1)
