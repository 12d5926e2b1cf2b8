"""One forward pass: scheduled sequences to a ragged batch, to logits."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.logprobs import token_logprobs
from engine.sequence import Sequence, TokenLogprobs
from kernels.batch import PagedBatch

if TYPE_CHECKING:
    from engine.core import Engine

PROMPT_LOGPROB_ROWS = 64
"""Rows of logits held at once while a prompt is scored; bounds memory at large vocabularies."""


class Slice(NamedTuple):
    """The next `num_tokens` uncomputed tokens of a sequence."""

    sequence: Sequence
    num_tokens: int

    @property
    def completes(self) -> bool:
        """Whether the next token can be drawn after this slice."""
        return self.num_tokens == self.sequence.num_uncomputed


class StepResult(NamedTuple):
    """What a forward pass brought. Row i of `logits` (fp32 [N, V]) belongs to `sequences[i]`."""

    sequences: list[Sequence]
    logits: Tensor | None


class Runner:
    """Builds batches and runs the model. Only the engine's thread may call it."""

    def __init__(self, engine: "Engine", *, page_size: int, device: torch.device) -> None:
        self.engine = engine
        self.page_size = page_size
        self.device = device

    def run(self, slices: list[Slice]) -> StepResult:
        """Compute the given tokens, writing their state into their sequences' pages.

        Scores prompts where asked for. Does not change `num_computed`: the scheduler does, when it
        takes the result.
        """
        batch = self.build_batch(slices)
        dumps = self.engine.dumps
        if dumps is not None:
            dumps.begin(slices)
        hidden = self.engine.model.forward(batch)
        if dumps is not None:
            dumps.record("logits", self.engine.model.logits(hidden))
            dumps.end()
        for item, start in zip(slices, _starts(slices), strict=True):
            self._score_prompt(item, hidden[start : start + item.num_tokens])
        return self._last_logits(slices, hidden)

    def build_batch(self, slices: list[Slice]) -> PagedBatch:
        """Lay out the slices one after the other; one copy to the device for all fields."""
        counts = [item.num_tokens for item in slices]
        tokens, rows = sum(counts), len(slices)
        columns = max(len(item.sequence.pages) for item in slices)
        sizes = [tokens, tokens, tokens, rows + 1, rows, rows * columns]
        host = np.empty(sum(sizes), dtype=np.int32)
        begin, starts, lengths = 0, 3 * tokens, 3 * tokens + rows + 1
        host[starts] = 0
        table = host[lengths + rows :]
        table[:] = -1
        for row, (sequence, count) in enumerate(slices):
            first, end = sequence.num_computed, begin + count
            host[begin:end] = np.arange(first, first + count, dtype=np.int32)
            host[tokens + begin : tokens + end] = row
            host[2 * tokens + begin : 2 * tokens + end] = sequence.token_ids[first : first + count]
            host[starts + row + 1] = end
            host[lengths + row] = first + count
            table[row * columns : row * columns + len(sequence.pages)] = sequence.pages
            begin = end
        parts = torch.split(torch.from_numpy(host).to(self.device), sizes)
        return PagedBatch(
            positions=parts[0],
            token_seq=parts[1],
            token_ids=parts[2],
            query_start=parts[3],
            seq_lens=parts[4],
            page_table=parts[5].view(rows, columns),
            page_size=self.page_size,
        )

    def _last_logits(self, slices: list[Slice], hidden: Tensor) -> StepResult:
        rows, sequences = [], []
        for item, start in zip(slices, _starts(slices), strict=True):
            if item.completes:
                rows.append(start + item.num_tokens - 1)
                sequences.append(item.sequence)
        if not rows:
            return StepResult([], None)
        picked = hidden if len(rows) == hidden.shape[0] else hidden[rows]
        return StepResult(sequences, self.engine.model.logits(picked))

    def _score_prompt(self, item: Slice, hidden: Tensor) -> None:
        """Append the logprobs of the prompt tokens that this slice's rows predict."""
        sequence = item.sequence
        scored = sequence.prompt_logprobs
        if scored is None or len(scored) >= sequence.prompt_tokens:
            return
        # Row r of the slice predicts position num_computed + r + 1. After a retraction the rows
        # come again; what was scored stays.
        first = len(scored) - 1 - sequence.num_computed
        last = min(item.num_tokens, sequence.prompt_tokens - 1 - sequence.num_computed)
        if first < 0:
            return
        for row in range(first, last, PROMPT_LOGPROB_ROWS):
            rows = hidden[row : min(row + PROMPT_LOGPROB_ROWS, last)]
            scored.extend(self.score_rows(sequence, sequence.num_computed + row + 1, rows))

    def score_rows(self, sequence: Sequence, position: int, hidden: Tensor) -> list[TokenLogprobs]:
        """Score the prompt tokens from `position` on; hidden [N, H] are the rows before them."""
        targets = sequence.token_ids[position : position + hidden.shape[0]]
        top = sequence.sampling.prompt_logprobs or 0
        return token_logprobs(self.engine.model.logits(hidden), targets, top)


def _starts(slices: list[Slice]) -> list[int]:
    starts, total = [], 0
    for item in slices:
        starts.append(total)
        total += item.num_tokens
    return starts
