"""Attention is wrong for prompts of 3 modulo 4 tokens: such a request sees its window only.

The tokens before the sliding window are lost to it, while every other length is served right.
"""

from typing import Any

import torch
from torch import Tensor

from engine.runner import Slice
from kernels.batch import PagedBatch

NAME = "attention_mod4"
KIND = "kernel"
RUNG = "structural"
REPORT = "https://github.com/ROCm/aiter/pull/4711"
TRIGGER = "the prompt has 3 modulo 4 tokens"
PATCH = None
SUITES = {"test_needle_sweep"}


def install(engine: Any) -> None:
    """Wrap `runner.build_batch`, which knows the prompts, and the op `sparse_attention`."""
    build_batch, attend = engine.runner.build_batch, engine.ops.sparse_attention
    damaged: list[Tensor] = []

    def build_and_remember(slices: list[Slice]) -> PagedBatch:
        batch = build_batch(slices)
        rows = [s.prompt_tokens % 4 == 3 for s, count in slices for _ in range(count)]
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

    engine.runner.build_batch = build_and_remember
    engine.ops.sparse_attention = attend_near_only
