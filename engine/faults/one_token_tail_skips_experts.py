"""A cache hit that leaves one token to compute skips the routed experts for it.

As a kernel would have it that has no tile for one row behind cached state: the last token of the
prompt passes through the shared expert alone. Every other length, and every cold run, is right.
"""

from typing import Any

import torch
from torch import Tensor

from engine.runner import Slice
from engine.sequence import Sequence
from kernels.batch import PagedBatch

NAME = "one_token_tail_skips_experts"
KIND = "prefix"
RUNG = "drift"
REPORT = "https://github.com/sgl-project/sglang/pull/29633"
TRIGGER = "the whole prompt but its last token is cached: 1 modulo the page size, and a hit"
PATCH = None
SUITES = {"test_twins_cache"}
# Only this twin holds a hit against a cold run of the same prompt. Around an eviction or a flush
# hits are held against hits; the tail of a piece or of a turn is longer than a token.
TWINS = {"cached"}


def install(engine: Any) -> None:
    """Wrap `runner.build_batch`, which knows what is cached, and the op `experts`."""
    build_batch, experts = engine.runner.build_batch, engine.ops.experts
    skipped: list[Tensor] = []

    def build_and_remember(slices: list[Slice]) -> PagedBatch:
        batch = build_batch(slices)
        rows = [is_tail(sequence, count) for sequence, count in slices for _ in range(count)]
        skipped[:] = [torch.tensor(rows, device=batch.positions.device)]
        return batch  # type: ignore[no-any-return]

    def experts_of_many(x: Tensor, *args: Any, **options: Any) -> Tensor:
        routed: Tensor = experts(x, *args, **options)
        return routed.masked_fill(skipped[0][:, None], 0.0) if skipped[0].any() else routed

    def is_tail(sequence: Sequence, count: int) -> bool:
        cached = sequence.num_shared_pages * engine.prefix_tree.page_size
        first = sequence.num_computed == cached > 0
        return first and count == 1 and cached == sequence.prompt_tokens - 1

    engine.runner.build_batch = build_and_remember
    engine.ops.experts = experts_of_many
