"""Ragged batches over scattered pages, with poison wherever a kernel must not read."""

import torch
from torch import Tensor

from fidelity.tensors import same_bits
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


def sequences_of(counts: tuple[int, ...]) -> Tensor:
    """int64 [T]: the sequence of each token of a batch with so many tokens of each."""
    return torch.repeat_interleave(torch.tensor(counts))


def positions_of(last: Tensor, counts: tuple[int, ...]) -> Tensor:
    """int64 [T]: where the tokens of such a batch stand, whose last ones stand at `last`."""
    at = last.tolist()
    each = [torch.arange(p + 1 - count, p + 1) for p, count in zip(at, counts, strict=True)]
    return torch.cat(each).to(last.device)


class Pages:
    """Sequences over pages in random order; whatever is not theirs is NaN.

    The last counts[b] tokens of a sequence are asked, one where no counts are given; sequence b has
    positions[b] + 1 tokens.
    """

    def __init__(
        self,
        positions: Tensor,
        page_size: int,
        seed: int = 0,
        *,
        counts: tuple[int, ...] | None = None,
    ) -> None:
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
        counts = counts or (1,) * len(lengths)
        asked = positions_of(positions, counts)
        self.batch = PagedBatch(
            positions=asked.int(),
            token_seq=sequences_of(counts).int().to(self.device),
            page_table=self.table,
            query_start=torch.tensor((0, *counts)).cumsum(0).int().to(self.device),
            seq_lens=positions.int() + 1,
            page_size=page_size,
            token_ids=torch.zeros_like(asked, dtype=torch.int32),
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
        closed = self.batch.seq_lens.long() // m
        for b in range(rows.shape[0]):
            w = index[: int(closed[b])]
            pool[self.table[b].long()[w // slots], w % slots] = rows[b, : len(w)]
        return pool


def others_stay(before: Tensor, after: Tensor, slots: Tensor) -> bool:
    """Whether a store left each row of a pool [P, slots, C] alone, to the bit, but these."""
    kept = torch.ones(before.shape[0] * before.shape[1], dtype=torch.bool, device=before.device)
    kept[slots] = False
    rows = (pool.view(torch.uint8).flatten(0, 1)[kept] for pool in (before, after))
    return same_bits(*rows)


def stale(pool: Tensor) -> Tensor:
    """The same pool full of what stood there before: any bytes, the same at each call."""
    generator = torch.Generator().manual_seed(0)
    raw = pool.view(torch.uint8)
    raw.copy_(torch.randint(256, raw.shape, generator=generator, dtype=torch.uint8))
    return pool
