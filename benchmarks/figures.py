"""What the lines of the table of published figures are made of."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels import PagedBatch, Settings, bind

PAGE = 256


class Figure(NamedTuple):
    """One line of the table."""

    what: str
    published: str
    ours: str
    why: str


def relative(made: Tensor, truth: Tensor) -> float:
    return float((made.double() - truth.double()).norm() / truth.double().norm())


def cosine(made: Tensor, truth: Tensor) -> float:
    a, b = made.double().flatten(), truth.double().flatten()
    return float((a @ b) / (a.norm() * b.norm()))


def decode_batch(
    positions: Sequence[int], device: torch.device, page: int = PAGE, *, shared: bool = False
) -> PagedBatch:
    """One token a sequence, pages one after the other; `shared`: all sequences have the same."""
    need = [position // page + 1 for position in positions]
    table = torch.full((len(need), max(need)), -1, dtype=torch.int32)
    first = 0
    for row, count in enumerate(need):
        table[row, :count] = torch.arange(first, first + count, dtype=torch.int32)
        first += 0 if shared else count
    count = len(need)
    at = torch.arange(count + 1, dtype=torch.int32, device=device)
    where = torch.tensor(positions, dtype=torch.int32, device=device)
    return PagedBatch(
        positions=where,
        token_seq=at[:-1],
        page_table=table.to(device),
        query_start=at,
        seq_lens=where + 1,
        page_size=page,
        token_ids=torch.zeros_like(at[:-1]),
    )


def ops_with(patch: str, device: torch.device, settings: Settings) -> Any:
    return bind([patch], device=device, dtype=torch.float32, settings=settings)
