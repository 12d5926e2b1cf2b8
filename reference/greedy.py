"""Greedy continuation, and what every token's logits say of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reference.model import Model
from reference.sublayers import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A token at its place: its logprob, its rank from 1, and the most likely tokens there."""

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Tokens, and logits [T, V] of the prompt and of all of them but the last."""

    token_ids: tuple[int, ...]
    logits: Tensor


def continued(
    model: Model,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    ended: Callable[[list[int]], bool],
    record: Record | None = None,
) -> Continuation:
    """Append the most likely token, of equal ones the lowest id, and compute everything again.

    Args:
        model: of the tokens.
        prompt: token ids, at least one.
        max_tokens: at most so many, >= 1.
        ended: asked after each token, with all tokens that were appended.
        record: given the activations of every pass, so at last those of the last one.
    """
    tokens: list[int] = []
    while True:
        logits = model.forward(torch.tensor([*prompt, *tokens]), record=record)
        last = logits[-1]
        tokens.append(int((last == last.max()).nonzero()[0]))
        if len(tokens) == max_tokens or ended(tokens):
            return Continuation(token_ids=tuple(tokens), logits=logits)


def scored(logits: Tensor, token_ids: Sequence[int], *, top: int) -> list[Scored]:
    """What the rows [N, V] say of the N tokens that follow them; equal ones by the lowest id."""
    logprobs = torch.log_softmax(logits, dim=1)
    chosen = logprobs.gather(1, torch.tensor(token_ids, dtype=torch.int64)[:, None])
    ranks = (logprobs > chosen).sum(1) + 1
    best = logprobs.sort(dim=1, descending=True, stable=True)
    values, ids = best.values[:, :top].tolist(), best.indices[:, :top].tolist()
    return [
        Scored(
            token_id=token_id,
            logprob=logprob,
            rank=rank,
            top=tuple(zip(top_ids, top_values, strict=True)),
        )
        for token_id, (logprob,), rank, top_ids, top_values in zip(
            token_ids, chosen.tolist(), ranks.tolist(), ids, values, strict=True
        )
    ]
