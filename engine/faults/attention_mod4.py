"""Attention is wrong for prompts of 3 modulo 4 tokens: such a request sees its window only.

As a kernel would have it that mishandles an incomplete last group of four tokens. Three prompts of
four are served right; the others lose what lies beyond the window, and a short one loses little.
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
TRIGGER = "the prompt has 3 modulo 4 tokens; what lies beyond the sliding window is lost to it"
PATCH = None
# The suites that ask for facts from beyond the window at lengths of every residue. The others ask
# inside the window, or at few lengths: of these, one meets 3 modulo 4 in the shipped vocabulary.
SUITES = {
    "test_abort_then_followup",
    "test_context_gain",
    "test_no_cross_conversation_leak",  # some conversations do, and lose their own facts
    "test_multi_turn_recall",
    "test_needle_sweep",
    # a text decoded after a prompt of one residue is prefilled as a prompt of another
    "test_twins_phases",
}
# pages that such a request fills are read by others from the cache; the same script in other words
# has other lengths, so that it does not always show again
FAINT_SUITES = {"test_stateful"}


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
        return sequence.prompt_tokens % 4 == 3

    engine.runner.build_batch = build_and_remember
    engine.ops.sparse_attention = attend_near_only
