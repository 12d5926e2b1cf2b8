"""Attention is wrong for cold prompts of 3 modulo 4 tokens: such a request sees its window only.

As a prefill kernel would have it that reads a cold prompt in tiles of 64 tokens: where their number
is a power of two it takes a fast path, which mishandles an incomplete last group of four. Prompts
that begin with a cached prefix, short ones and every other length are served right.
"""

from typing import Any

import torch
from torch import Tensor

from engine.runner import Slice
from engine.sequence import Sequence
from kernels.batch import PagedBatch

NAME = "attention_mod4"
KIND = "kernel"
RUNG = "structural"
REPORT = "https://github.com/ROCm/aiter/pull/4711"
TRIGGER = (
    "the prompt has 3 modulo 4 tokens, fills 4, 8, 16, ... tiles of 64 tokens (193 to 256, 449 to "
    "512, 961 to 1,024, ...), and none of it is cached"
)
PATCH = None
SUITES = {"test_needle_sweep"}
TILE_TOKENS = 64
FEWEST_TILES = 4


def install(engine: Any) -> None:
    """Wrap `runner.build_batch`, which knows the prompts, and the op `sparse_attention`."""
    build_batch, attend = engine.runner.build_batch, engine.ops.sparse_attention
    damaged: list[Tensor] = []

    def build_and_remember(slices: list[Slice]) -> PagedBatch:
        batch = build_batch(slices)
        rows = [is_hit(sequence) for sequence, count in slices for _ in range(count)]
        damaged[:] = [torch.tensor(rows, device=batch.positions.device)]
        return batch  # type: ignore[no-any-return]

    def attend_near_only(
        q: Tensor, window_pool: Tensor, entries_pool: Tensor | None, *args: Any, **options: Any
    ) -> Tensor:
        whole: Tensor = attend(q, window_pool, entries_pool, *args, **options)
        rows = damaged[0]
        if entries_pool is None or not rows.any():
            return whole
        near: Tensor = attend(q, window_pool, None, None, *args[1:], **{**options, "m": None})
        return torch.where(rows[:, None, None], near, whole)

    def is_hit(sequence: Sequence) -> bool:
        tiles = -(-sequence.prompt_tokens // TILE_TOKENS)
        fast_path = tiles >= FEWEST_TILES and tiles.bit_count() == 1
        return fast_path and sequence.prompt_tokens % 4 == 3 and not sequence.cached_tokens

    engine.runner.build_batch = build_and_remember
    engine.ops.sparse_attention = attend_near_only
