"""Logits to tokens.

What a request draws depends on its own logits, parameters, seed and number of tokens so far, never
on what shares its batch: each draw has its own counter-based random number.
"""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.logprobs import token_logprobs
from engine.sequence import Sequence, TokenLogprobs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.core import Engine


class Sampled(NamedTuple):
    """One drawn token. `token_id` is -1 when the row held a value that is not a number."""

    token_id: int
    logprobs: TokenLogprobs | None


class Sampler:
    """Draws one token for each row. Keeps no state between calls."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine

    def sample(self, logits: Tensor, sequences: list[Sequence]) -> list[Sampled]:
        """Draw the next token of each sequence.

        Args:
            logits: fp32 [B, V], row i for sequences[i]; not changed.
            sequences: their `completion_tokens` says which draw this is.
        """
        token_ids = self.greedy(logits)
        for row, sequence in enumerate(sequences):
            plain = sequence.sampling.greedy and not sequence.sampling.penalised
            if not plain and token_ids[row] >= 0:
                token_ids[row] = self.draw(logits[row], sequence)
        return [
            Sampled(token_id, self._logprobs(logits[row], sequence, token_id))
            for row, (token_id, sequence) in enumerate(zip(token_ids, sequences, strict=True))
        ]

    def greedy(self, logits: Tensor) -> list[int]:
        """Return each row's id of the highest logit, the lowest among equals; -1 for NaN or inf."""
        best = logits.amax(dim=-1, keepdim=True)
        vocabulary = logits.shape[-1]
        ids = torch.arange(vocabulary, device=logits.device)
        first = torch.where(logits == best, ids, vocabulary).amin(dim=-1)
        finite = torch.isfinite(best.squeeze(-1))
        return torch.where(finite, first, -1).tolist()

    def draw(self, logits: Tensor, sequence: Sequence) -> int:
        """Draw one token by the sequence's parameters; logits fp32 [V]."""
        row = logits.double().cpu().numpy().copy()
        penalise(row, sequence)
        if sequence.sampling.greedy:
            return int(row.argmax())
        probabilities = filtered(row, sequence)
        cumulative = probabilities.cumsum()
        # Never the last id by rounding: a draw of exactly 1 times the sum would run off the end.
        point = self.uniform(sequence) * cumulative[-1]
        chosen = int(np.searchsorted(cumulative, point, side="right"))
        return min(chosen, int(np.flatnonzero(probabilities)[-1]))

    def uniform(self, sequence: Sequence) -> float:
        """Return the random number of this draw, in [0, 1): a function of seed and draw alone."""
        key = sequence.seed & ((1 << 64) - 1)
        bits = np.random.Philox(key=key, counter=sequence.completion_tokens)
        return float(np.random.Generator(bits).random())

    @staticmethod
    def _logprobs(row: Tensor, sequence: Sequence, token_id: int) -> TokenLogprobs | None:
        top = sequence.sampling.logprobs
        if top is None or token_id < 0:
            return None
        return token_logprobs(row[None], [token_id], top)[0]


def penalise(row: "NDArray[np.float64]", sequence: Sequence) -> None:
    """Lower the logits of tokens generated so far, in place."""
    sampling = sequence.sampling
    if not sampling.penalised:
        return
    counts = Counter(sequence.completion_token_ids)
    ids = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
    times = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))
    row[ids] -= sampling.frequency_penalty * times + sampling.presence_penalty


def filtered(row: "NDArray[np.float64]", sequence: Sequence) -> "NDArray[np.float64]":
    """Return probabilities after temperature, top-k, top-p and min-p; not normalised again.

    Among equal logits the lower id counts as the more likely one, so that a cut is well defined.
    """
    sampling = sequence.sampling
    scaled = (row - row.max()) / sampling.temperature
    probabilities: NDArray[np.float64] = np.exp(scaled)
    probabilities /= probabilities.sum()
    if sampling.top_k <= 0 and sampling.top_p >= 1.0 and sampling.min_p <= 0.0:
        return probabilities
    order = np.argsort(-scaled, kind="stable")
    ranked = probabilities[order]
    keep = np.ones(len(order), dtype=bool)
    if sampling.top_k > 0:
        keep[sampling.top_k :] = False
        ranked = np.where(keep, ranked, 0.0)
        ranked /= ranked.sum()
    if sampling.top_p < 1.0:
        # A token stays while the mass before it is below top_p; the first one always stays.
        keep &= ranked.cumsum() - ranked < sampling.top_p
    if sampling.min_p > 0.0:
        keep &= ranked >= sampling.min_p * ranked[0]
    kept: NDArray[np.float64] = np.zeros_like(probabilities)
    kept[order[keep]] = probabilities[order[keep]]
    return kept
