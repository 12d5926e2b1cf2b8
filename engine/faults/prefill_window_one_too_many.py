"""While a prompt is read its window holds one key too many; generated tokens see the right one.

The mask of the prefill kernel lets keys through that lie exactly one window back, and the decode
kernel does not. Nothing is lost, and both phases answer well; they only disagree.
"""

from typing import Any

import torch
from torch import Tensor

from engine.runner import Slice
from kernels.batch import PagedBatch

NAME = "prefill_window_one_too_many"
KIND = "kernel"
RUNG = "drift"
REPORT = "https://github.com/ml-explore/mlx-lm/pull/390"
TRIGGER = "a prompt longer than the sliding window, held against the same tokens generated"
PATCH = None
SUITES = {"test_twins_phases"}
# The tokens of a prompt are computed one way in every request, whatever is cached, batched or cut
# into chunks. Two twins have the same tokens once as prompt and once as generated: the one that
# prefills what was decoded, and the conversation whose earlier answers become part of the prompt.
# In the second those are 16 tokens an answer: 13 of 150 conversations part on the nano checkpoint.
TWINS = {"decoded"}
FAINT_TWINS = {"turned"}


def install(engine: Any) -> None:
    """Wrap `runner.build_batch`, which knows the prompts, and the op `sparse_attention`."""
    build_batch, attend = engine.runner.build_batch, engine.ops.sparse_attention
    reading: list[Tensor] = []

    def build_and_remember(slices: list[Slice]) -> PagedBatch:
        batch = build_batch(slices)
        rows = [
            position < sequence.prompt_tokens
            for sequence, count in slices
            for position in range(sequence.num_computed, sequence.num_computed + count)
        ]
        reading[:] = [torch.tensor(rows, device=batch.positions.device)]
        return batch  # type: ignore[no-any-return]

    def attend_one_more(*args: Any, window: int, **options: Any) -> Tensor:
        right: Tensor = attend(*args, window=window, **options)
        rows = reading[0]
        if not rows.any():
            return right
        wide: Tensor = attend(*args, window=window + 1, **options)
        return torch.where(rows[:, None, None], wide, right)

    engine.runner.build_batch = build_and_remember
    engine.ops.sparse_attention = attend_one_more
