"""Attention is wrong for cold prompts of 3 modulo 4 tokens: such a request sees its window only.

As a prefill kernel would have it that mishandles the last, incomplete tile: prompts that begin with
a cached prefix take another path, and short ones fit one tile. Every other length is served right.
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
TRIGGER = "the prompt has 3 modulo 4 tokens, more than 192, and none of them is cached"
PATCH = None
SUITES = {"test_needle_sweep"}
SHORTEST_TOKENS = 193


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
        tokens = sequence.prompt_tokens
        return tokens % 4 == 3 and tokens >= SHORTEST_TOKENS and not sequence.cached_tokens

    engine.runner.build_batch = build_and_remember
    engine.ops.sparse_attention = attend_near_only
