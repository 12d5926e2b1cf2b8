"""The model's own log-probabilities of given tokens."""

import torch
from torch import Tensor

from engine.sequence import TokenLogprobs


def token_logprobs(logits: Tensor, token_ids: list[int], top: int) -> list[TokenLogprobs]:
    """Score one token a row.

    Args:
        logits: fp32 [N, V], before temperature, penalties and filters.
        token_ids: N ids.
        top: how many of the most likely tokens to list, >= 0.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    ids = torch.tensor(token_ids, device=logits.device)
    chosen = logprobs.gather(1, ids[:, None])
    ranks = (logprobs > chosen).sum(dim=-1) + 1
    values, indices = _top(logprobs, min(top, logits.shape[-1]))
    rows = zip(
        token_ids,
        chosen.squeeze(1).tolist(),
        ranks.tolist(),
        indices.tolist(),
        values.tolist(),
        strict=True,
    )
    return [
        TokenLogprobs(
            token_id=token_id, logprob=logprob, rank=rank, top=tuple(zip(best, score, strict=True))
        )
        for token_id, logprob, rank, best, score in rows
    ]


def _top(logprobs: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return the most likely tokens of each row, of equal ones the lowest id first."""
    if top == 0:
        empty = logprobs[:, :0]
        return empty, empty.long()
    values, indices = logprobs.topk(top, dim=-1)
    by_id = indices.sort(dim=-1)
    values = values.gather(1, by_id.indices)
    order = values.sort(dim=-1, descending=True, stable=True)
    return order.values, by_id.values.gather(1, order.indices)
