"""Which experts a token goes to, and with what weights.

Score of an expert: sqrt(softplus(x . gate)). The weights of the chosen ones are their scores,
divided by their sum, times the scaling factor: once, and never the shared expert.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from reference.arguments import check_shape, refuse, wide


class Routed(NamedTuple):
    """ids int64 [T, K]; weights [T, K], in the order of the ids."""

    ids: Tensor
    weights: Tensor


def router_scores(x: Tensor, gate: Tensor) -> Tensor:
    """sqrt(softplus(x @ gate^T)), [T, E]; softplus(v) = max(v, 0) + log(1 + exp(-|v|))."""
    x = wide(x)
    check_shape("gate", gate, -1, x.shape[-1])
    v = x @ gate.to(x.dtype).T
    return (v.clamp(min=0) + torch.log1p(torch.exp(-v.abs()))).sqrt()


def route_learned(x: Tensor, gate: Tensor, bias: Tensor, *, topk: int, scaling: float) -> Routed:
    """The `topk` experts of the highest score + bias, best first, then lowest id.

    Args:
        x: [T, H].
        gate: [E, H].
        bias: [E]; it decides who is chosen, and takes no part in the weights.
        topk: 1 .. E.
        scaling: factor on the normalised weights.
    """
    scores = router_scores(x, gate)
    check_shape("bias", bias, gate.shape[0])
    if not 1 <= topk <= gate.shape[0]:
        refuse("topk", topk, f"1 .. {gate.shape[0]} experts")
    ranked = scores + bias.to(scores.dtype)
    ids = ranked.sort(dim=1, descending=True, stable=True).indices[:, :topk]
    return Routed(ids, _weights(scores, ids, scaling))


def route_hashed(
    x: Tensor, gate: Tensor, token_ids: Tensor, tid2eid: Tensor, *, scaling: float
) -> Routed:
    """The experts that a table names for the token id; the weights still come from the gate.

    Args:
        x: [T, H].
        gate: [E, H].
        token_ids: int [T].
        tid2eid: int [V, K].
        scaling: factor on the normalised weights.
    """
    check_shape("token_ids", token_ids, x.shape[0])
    check_shape("tid2eid", tid2eid, -1, -1)
    if token_ids.numel() and not 0 <= int(token_ids.min()) <= int(token_ids.max()) < len(tid2eid):
        refuse("token_ids", f"up to {int(token_ids.max())}", f"0 .. {len(tid2eid) - 1}")
    ids = tid2eid[token_ids.long()].long()
    return Routed(ids, _weights(router_scores(x, gate), ids, scaling))


def route_selected(scores: Tensor, ids: Tensor, scaling: float) -> Tensor:
    """Weights [T, K] of experts chosen by somebody else, from scores [T, E]."""
    return _weights(scores, ids.long(), scaling)


def _weights(scores: Tensor, ids: Tensor, scaling: float) -> Tensor:
    chosen = scores.gather(1, ids)
    return chosen / chosen.sum(1, keepdim=True) * scaling
