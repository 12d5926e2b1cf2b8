"""A ragged batch over paged state: prefill chunks and decode tokens side by side.

A token at position p of sequence b keeps its state in page `page_table[b, p // page_size]`.
Compressed entry w (rate m) lies in page `w * m // page_size`, slot `w % (page_size // m)`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from kernels.checks import check_int32, check_range, refuse

R = TypeVar("R")
MOST_PAGES = 1 << 31  # page ids are int32
PAGES_IN_USE = "pages in use"


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedBatch:
    """T tokens of B sequences. Tokens of one sequence are adjacent and in order.

    Attributes:
        positions: int32 [T], absolute position of each token in its sequence.
        token_seq: int32 [T], row of `page_table`.
        page_table: int32 [B, max_pages]; unused entries are -1.
        query_start: int32 [B + 1]; tokens of sequence b are query_start[b] : query_start[b + 1].
        seq_lens: int32 [B], tokens of the sequence including this step.
        page_size: tokens of a page, a multiple of every compression rate.
        token_ids: int32 [T], for hash routing.
        cache: what ops derive from the fields once a batch (not part of its value). The fields
            must not be changed in place after the first op has run.
    """

    positions: Tensor
    token_seq: Tensor
    page_table: Tensor
    query_start: Tensor
    seq_lens: Tensor
    page_size: int
    token_ids: Tensor
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def derive(self, key: Any, make: Callable[[], R]) -> R:
        """The value kept under `key`, made at first use."""
        if key not in self.cache:
            self.cache[key] = make()
        value: R = self.cache[key]
        return value

    def starts(self) -> Tensor:
        """int64 [B]: position of each sequence's first token in this batch."""
        return self.derive("starts", lambda: self.seq_lens.long() - self.query_start.long().diff())

    def window_slots(self) -> Tensor:
        """int64 [T]: row of each token in a pool flattened to [P * page_size, ...]."""

        def make() -> Tensor:
            pages = self.page_table[self.token_seq.long(), self.positions.long() // self.page_size]
            return pages.long() * self.page_size + self.positions.long() % self.page_size

        return self.derive("window_slots", make)

    def entry_slots(self, entry_seq: Tensor, entry_index: Tensor, m: int) -> Tensor:
        """int64, like `entry_index`: rows in a pool flattened to [P * (page_size // m), ...]."""
        per_page = self.page_size // m
        index = entry_index.long()
        pages = self.page_table[entry_seq.long(), index // per_page]
        return pages.long() * per_page + index % per_page

    def closed_entries(self, m: int) -> tuple[Tensor, Tensor]:
        """(entry_seq, entry_index), int32 [N]: the windows of m tokens that this batch closes."""

        def make() -> tuple[Tensor, Tensor]:
            first = self.starts() // m
            counts = self.seq_lens.long() // m - first
            seq = torch.repeat_interleave(counts)
            offset = counts.cumsum(0) - counts
            index = torch.arange(seq.numel(), device=seq.device) - offset[seq] + first[seq]
            return seq.int(), index.int()

        return self.derive(("closed", m), make)

    def split(self) -> tuple["Part | None", "Part | None"]:
        """(decode, rest): the sequences with one token here, and the others; None where none is."""

        def make() -> tuple[Part | None, Part | None]:
            counts = self.query_start.diff().tolist()
            single = [seq for seq, count in enumerate(counts) if count == 1]
            others = [seq for seq, count in enumerate(counts) if count > 1]
            return self._part(single), self._part(others)

        return self.derive("split", make)

    def _part(self, seqs: list[int]) -> "Part | None":
        if not seqs:
            return None
        device = self.positions.device
        rows = torch.tensor(seqs, device=device)
        counts = self.query_start.long().diff()[rows]
        starts = self.query_start.long()[rows]
        token_seq = torch.repeat_interleave(counts)
        offset = counts.cumsum(0) - counts
        at = torch.arange(token_seq.numel(), device=device)
        tokens = at - offset[token_seq] + starts[token_seq]
        if tokens.numel() == self.positions.numel() and len(seqs) == self.seq_lens.numel():
            return Part(tokens, self)
        zero = counts.new_zeros(1)
        return Part(
            tokens,
            PagedBatch(
                positions=self.positions[tokens],
                token_seq=token_seq.int(),
                page_table=self.page_table[rows],
                query_start=torch.cat((zero, counts.cumsum(0))).int(),
                seq_lens=self.seq_lens[rows],
                page_size=self.page_size,
                token_ids=self.token_ids[tokens],
            ),
        )

    def check_pool(self, argument: str, pages: int) -> None:
        """Refuse a pool that lacks a page of this batch, and a batch that does not fit together.

        Looked at once a batch, and on the CPU alone: elsewhere it would wait for the device.

        Raises: ValueError: names the field or the pool.
        """
        if not self.positions.is_cpu:
            return
        used: int = self.derive(PAGES_IN_USE, self._pages_in_use)
        if pages < used:
            refuse(argument, f"{pages} pages", f"at least {used}, as page_table says")

    def _pages_in_use(self) -> int:
        self.validate(pages=MOST_PAGES)
        ids = self._used_pages()
        return int(ids.max()) + 1 if ids.numel() else 0

    def check_entries(self, entry_seq: Tensor, entry_index: Tensor, m: int) -> None:
        """Refuse entries of no sequence, or of windows that are not closed; on the CPU alone."""
        check_range("entry_seq", entry_seq, 0, self.seq_lens.numel() - 1)
        if not entry_index.is_cpu or not entry_index.numel():
            return
        closed = self.seq_lens.long()[entry_seq.long()] // m
        wrong = ((entry_index < 0) | (entry_index >= closed)).nonzero()
        if wrong.numel():
            at = int(wrong[0])
            refuse("entry_index", int(entry_index[at]), f"0..{int(closed[at]) - 1}, closed windows")

    def check_selected(self, selected: Tensor, m: int) -> None:
        """Refuse entries that no page of the table can hold; on the CPU alone. -1 is none."""
        check_range("selected", selected, -1, self.page_table.shape[1] * (self.page_size // m) - 1)

    def validate(self, *, pages: int, vocab: int | None = None) -> None:
        """Check every invariant once, before the first op of a step; the ops rely on it.

        Args:
            pages: pages of the pools; a page id in use must lie in 0 .. pages - 1.
            vocab: when given, token ids must lie in 0 .. vocab - 1.

        Raises: ValueError: names the field, what came and what is accepted.
        """
        tokens, seqs = self.positions.numel(), self.seq_lens.numel()
        check_int32("positions", self.positions, tokens)
        check_int32("token_seq", self.token_seq, tokens)
        check_int32("token_ids", self.token_ids, tokens)
        check_int32("page_table", self.page_table, seqs, -1)
        check_int32("query_start", self.query_start, seqs + 1)
        check_int32("seq_lens", self.seq_lens, seqs)
        if self.page_size < 1:
            refuse("page_size", self.page_size, "a positive number of tokens")
        self._validate_ranges(tokens)
        self._validate_pages(pages)
        if vocab is not None and tokens:
            low, high = (int(v) for v in torch.aminmax(self.token_ids))
            if low < 0 or high >= vocab:
                refuse("token_ids", f"values {low}..{high}", f"0..{vocab - 1}")

    def _validate_ranges(self, tokens: int) -> None:
        starts = self.query_start.tolist()
        lens = self.seq_lens.tolist()
        if starts[0] != 0 or starts[-1] != tokens or starts != sorted(starts):
            refuse("query_start", starts[:8], f"ascending from 0 to T = {tokens}")
        capacity = self.page_table.shape[1] * self.page_size
        for seq, length in enumerate(lens):
            queries = starts[seq + 1] - starts[seq]
            if not queries <= length <= capacity:
                refuse(
                    "seq_lens",
                    f"{length} tokens for sequence {seq} with {queries} in this batch",
                    f"at least those and at most {capacity} = max_pages * page_size",
                )
        rows = torch.repeat_interleave(self.query_start.long().diff())
        if not torch.equal(rows, self.token_seq.long()):
            refuse("token_seq", self.token_seq.tolist()[:8], "the rows that query_start implies")
        offset = torch.arange(tokens, device=rows.device) - self.query_start.long()[rows]
        if not torch.equal(self.starts()[rows] + offset, self.positions.long()):
            refuse("positions", self.positions.tolist()[:8], "contiguous up to seq_lens - 1")

    def _validate_pages(self, pages: int) -> None:
        ids = self._used_pages()
        if ids.numel():
            low, high = (int(v) for v in torch.aminmax(ids))
            if low < 0 or high >= pages:
                refuse("page_table", f"page ids {low}..{high}", f"0..{pages - 1} within seq_lens")

    def _used_pages(self) -> Tensor:
        """The page ids that hold tokens."""
        used = (self.seq_lens.long() + self.page_size - 1) // self.page_size
        column = torch.arange(self.page_table.shape[1], device=used.device)
        return self.page_table[column[None] < used[:, None]]


class Part(NamedTuple):
    """Some sequences of a batch: their tokens int64 [N] in it, and a batch of them alone."""

    tokens: Tensor
    batch: PagedBatch
