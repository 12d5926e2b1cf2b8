"""A chunk of a prompt reads as many heavily compressed entries as its own tokens make, no more.

The loop over entries is bounded by the chunk's length and not by the context's. The first chunk is
right; later ones read the entries of a prompt's beginning and none behind them. Nothing is lost
that the sparse layers find, so facts that name what they are about come back. What is told by a
heading far above alone does not.
"""

from typing import Any

import torch
from torch import Tensor

from engine.runner import Slice
from kernels.batch import PagedBatch

NAME = "prompt_chunk_bounds_entries"
KIND = "sparse"
RUNG = "structural"
REPORT = "https://github.com/hw-native-sys/pypto-lib/issues/592"
TRIGGER = "a prompt is longer than one chunk, or what is not cached of it begins behind a prefix"
PATCH = None
SUITES = {
    "test_needle_sweep",  # by the headings of sections: the line is bound to them in a later chunk
    "test_stateful",  # a follow-up over a cached prefix reads fewer entries than the same, cold
    "test_twins_cache",  # the same
    "test_twins_phases",  # one chunk against many, and against decoding, which reads all entries
}


def install(engine: Any) -> None:
    """Wrap `runner.build_batch`, which knows prompts and chunks, and the op `sparse_attention`."""
    build_batch, attend = engine.runner.build_batch, engine.ops.sparse_attention
    chunks: list[Tensor] = []

    def build_and_remember(slices: list[Slice]) -> PagedBatch:
        batch = build_batch(slices)
        lengths = [
            count if position < sequence.prompt_tokens else position + 1
            for sequence, count in slices
            for position in range(sequence.num_computed, sequence.num_computed + count)
        ]
        chunks[:] = [torch.tensor(lengths, device=batch.positions.device)]
        return batch  # type: ignore[no-any-return]

    def attend_within_chunk(
        q: Tensor,
        window_pool: Tensor,
        entries_pool: Tensor | None,
        selected: Tensor | None,
        *args: Any,
        m: int | None,
        batch: PagedBatch,
        **options: Any,
    ) -> Tensor:
        if entries_pool is not None and selected is None and m is not None:
            selected = first_entries(chunks[0] // m, int(batch.seq_lens.max()) // m)
        out: Tensor = attend(
            q, window_pool, entries_pool, selected, *args, m=m, batch=batch, **options
        )
        return out

    engine.runner.build_batch = build_and_remember
    engine.ops.sparse_attention = attend_within_chunk


def first_entries(counts: Tensor, width: int) -> Tensor:
    """Return int32 [T, width]: for each token the first `counts` entries, -1 behind them."""
    index = torch.arange(width, dtype=torch.int32, device=counts.device)
    return torch.where(index < counts[:, None], index, -1).int()
