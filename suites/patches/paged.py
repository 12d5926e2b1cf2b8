"""Ragged batches over scattered pages, with poison wherever a kernel must not read."""

import torch
from torch import Tensor

from kernels import PagedBatch


def token_batch(token_ids: Tensor) -> PagedBatch:
    """One sequence of these tokens, for ops that read only the ids."""
    count, device = token_ids.shape[0], token_ids.device
    return PagedBatch(
        positions=torch.arange(count, dtype=torch.int32, device=device),
        token_seq=torch.zeros(count, dtype=torch.int32, device=device),
        page_table=torch.zeros(1, 1, dtype=torch.int32, device=device),
        query_start=torch.tensor([0, count], dtype=torch.int32, device=device),
        seq_lens=torch.tensor([count], dtype=torch.int32, device=device),
        page_size=max(1, count),
        token_ids=token_ids.int(),
    )
