"""One-token sequences over scattered pages beside poisoned ones."""

import torch

from kernels import PagedBatch

NAN = float("nan")


def decode_batch(lengths: list[int], page_size: int, device: str) -> tuple[PagedBatch, int]:
    """The last token of each sequence, and how many pages the pools need."""
    need = [-(-length // page_size) for length in lengths]
    pages = sum(need) + 3
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(3)).tolist()
    table = torch.full((len(lengths), max(need)), -1, dtype=torch.int32)
    first = 0
    for row, count in enumerate(need):
        table[row, :count] = torch.tensor(order[first : first + count], dtype=torch.int32)
        first += count
    count = len(lengths)
    batch = PagedBatch(
        positions=torch.tensor(lengths, dtype=torch.int32, device=device) - 1,
        token_seq=torch.arange(count, dtype=torch.int32, device=device),
        page_table=table.to(device),
        query_start=torch.arange(count + 1, dtype=torch.int32, device=device),
        seq_lens=torch.tensor(lengths, dtype=torch.int32, device=device),
        page_size=page_size,
        token_ids=torch.zeros(count, dtype=torch.int32, device=device),
    )
    batch.validate(pages=pages)
    return batch, pages


def filled(pages: int, slots: int, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A pool in which the rows [B, S, D] of each sequence lie at their place, NaN elsewhere."""
    pool = torch.full((pages, slots, rows.shape[-1]), NAN)
    for sequence, page_ids in enumerate(table.cpu().tolist()):
        for w in range(rows.shape[1]):
            if w // slots < len(page_ids) and page_ids[w // slots] >= 0:
                pool[page_ids[w // slots], w % slots] = rows[sequence, w]
    return pool
