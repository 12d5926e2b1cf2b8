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


class Pages:
    """Sequences over pages in random order; whatever is not theirs is NaN.

    One token a sequence is asked at `positions`; sequence b has positions[b] + 1 tokens.
    """

    def __init__(self, positions: Tensor, page_size: int, seed: int = 0) -> None:
        self.page_size = page_size
        self.device = positions.device
        lengths = [int(position) + 1 for position in positions]
        need = [-(-length // page_size) for length in lengths]
        self.pages = sum(need) + sum(need) // 3 + 2
        order = torch.randperm(self.pages, generator=torch.Generator().manual_seed(seed)).tolist()
        table = torch.full((len(need), max(need)), -1, dtype=torch.int32)
        first = 0
        for row, count in enumerate(need):
            table[row, :count] = torch.tensor(order[first : first + count], dtype=torch.int32)
            first += count
        self.table = table.to(self.device)
        count = len(lengths)
        at = torch.arange(count + 1, dtype=torch.int32, device=self.device)
        self.batch = PagedBatch(
            positions=positions.int(),
            token_seq=at[:-1],
            page_table=self.table,
            query_start=at,
            seq_lens=positions.int() + 1,
            page_size=page_size,
            token_ids=torch.zeros_like(at[:-1]),
        )
        self.batch.validate(pages=self.pages)

    def pool(self, rows: Tensor, m: int = 1) -> Tensor:
        """[P, page_size / m, D] with row w of sequence b, [B, S, D], where its tokens lie.

        Rows of windows that are not closed yet are left out, so they are NaN.
        """
        slots = self.page_size // m
        pool = torch.full(
            (self.pages, slots, rows.shape[-1]), float("nan"), dtype=rows.dtype, device=rows.device
        )
        index = torch.arange(rows.shape[1], device=rows.device)
        closed = (self.batch.positions.long() + 1) // m
        for b in range(rows.shape[0]):
            w = index[: int(closed[b])]
            pool[self.table[b].long()[w // slots], w % slots] = rows[b, : len(w)]
        return pool
