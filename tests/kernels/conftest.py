"""Ragged batches for the ops, and the ops themselves in both implementations."""

import pytest
import torch

from kernels import Ops, PagedBatch, Settings, bind

NAN = float("nan")


class Ragged:
    """Makes batches over pages that are scattered on purpose, beside pages that are poisoned."""

    def __init__(self, page_size: int, pages_of: list[list[int]], pages: int) -> None:
        self.page_size = page_size
        self.pages = pages
        widest = max(len(ids) for ids in pages_of)
        self.table = torch.full((len(pages_of), widest), -1, dtype=torch.int32)
        for row, ids in enumerate(pages_of):
            self.table[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)

    @classmethod
    def scattered(cls, lengths: list[int], page_size: int, seed: int = 0) -> "Ragged":
        """Pages for sequences of these final lengths, in random order, a third of them unused."""
        need = [-(-length // page_size) for length in lengths]
        pages = sum(need) + sum(need) // 3 + 2
        ids = torch.randperm(pages, generator=torch.Generator().manual_seed(seed)).tolist()
        split, first = [], 0
        for count in need:
            split.append(ids[first : first + count])
            first += count
        return cls(page_size, split, pages)

    def batch(self, spans: list[tuple[int, int, int]], vocab: int = 7) -> PagedBatch:
        """`spans`: (row of the page table, first position, end position), in batch order."""
        counts = torch.tensor([end - first for _, first, end in spans])
        positions = [torch.arange(first, end) for _, first, end in spans]
        positions = torch.cat(positions).int()
        batch = PagedBatch(
            positions=positions,
            token_seq=torch.repeat_interleave(counts).int(),
            page_table=self.table[[row for row, _, _ in spans]].contiguous(),
            query_start=torch.cat((torch.zeros(1), counts.cumsum(0))).int(),
            seq_lens=torch.tensor([end for _, _, end in spans]).int(),
            page_size=self.page_size,
            token_ids=(positions * 5 + 1) % vocab,
        )
        batch.validate(pages=self.pages, vocab=vocab)
        return batch

    def poisoned(self, slots: int, *shape: int) -> torch.Tensor:
        """A pool whose every value is NaN until it is written."""
        return torch.full((self.pages, slots, *shape), NAN)


@pytest.fixture(scope="session")
def ragged() -> type[Ragged]:
    torch.set_num_threads(1)
    return Ragged


def make_ops(implementation: str, *patches: str, index_head_dim: int = 32) -> Ops:
    settings = Settings(index_topk=4, index_head_dim=index_head_dim, implementation=implementation)
    return bind(patches, device="cpu", dtype=torch.float32, settings=settings)


@pytest.fixture(scope="session")
def bound():
    """`make_ops(implementation, *patches, index_head_dim=32)`."""
    torch.set_num_threads(1)
    return make_ops


@pytest.fixture(scope="session", params=["torch", "native"])
def ops(request) -> Ops:
    torch.set_num_threads(1)
    return make_ops(request.param)


@pytest.fixture
def randn():
    """Standard normal tensors, the same at each run."""
    generator = torch.Generator().manual_seed(20)
    return lambda *shape: torch.randn(*shape, generator=generator)


@pytest.fixture(scope="session")
def native(bound) -> Ops:
    return bound("native")


@pytest.fixture(scope="session")
def plain(bound) -> Ops:
    return bound("torch")
