"""Mixture of experts: routing, routed experts, shared expert."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import linear

from kernels.batch import PagedBatch
from kernels.checks import (
    check_float,
    check_int32,
    check_limit,
    check_no_nan,
    check_positive,
    check_range,
    check_real,
    check_shape,
    check_whole,
    refuse,
    sizes,
)


def check_route(
    x: Tensor,
    gate_w: Tensor,
    bias: Tensor | None,
    tid2eid: Tensor | None,
    *,
    topk: int,
    scaling: float,
    batch: PagedBatch,
) -> None:
    """Refuse what would be read out of bounds; shared by all implementations.

    What ids and biases are, each implementation looks at itself.
    """
    experts, hidden = sizes("gate_w", gate_w, 2)
    check_shape("x", x, batch.positions.numel(), hidden)
    check_positive("scaling", scaling)
    check_whole("topk", topk, f"1..{experts} experts")
    if topk > experts:
        refuse("topk", topk, f"1..{experts} experts")
    if bias is not None and tid2eid is not None:
        refuse("tid2eid", "a table beside a bias", "one of the two")
    if bias is not None:
        check_shape("bias", bias, experts)
        check_real("bias", bias)
    if tid2eid is not None:
        check_shape("tid2eid", tid2eid, -1, topk)
        if tid2eid.dtype not in (torch.int32, torch.int64):
            refuse("tid2eid", tid2eid.dtype, "int32, int64")


def check_choice(
    bias: Tensor | None, tid2eid: Tensor | None, *, experts: int, batch: PagedBatch
) -> None:
    """Refuse ids without an expert or a row, and NaN that would decide; on the CPU alone."""
    if bias is not None:
        check_no_nan("bias", bias)
    if tid2eid is not None:
        check_range("token_ids", batch.token_ids, 0, len(tid2eid) - 1)
        if tid2eid.is_cpu:
            check_range("tid2eid", tid2eid[batch.token_ids.long()], 0, experts - 1)


def route(
    x: Tensor,
    gate_w: Tensor,
    bias: Tensor | None,
    tid2eid: Tensor | None,
    *,
    topk: int,
    scaling: float,
    batch: PagedBatch,
) -> tuple[Tensor, Tensor]:
    """Experts of each token and their weights: s = sqrt(softplus(x @ gate_w.T)).

    Args:
        x: [T, H].
        gate_w: [E, H].
        bias: fp32 [E], added for the choice only, never to the weights; None: no bias. NaN in it
            is refused on the CPU.
        tid2eid: int32 or int64 [V, topk], the choice by token id instead; None: by score.
        topk: experts of a token.
        scaling: of the weights, > 0.
        batch: token ids.


    Returns: ids int32 [T, topk] (by score: best first, ties to the lowest id), weights fp32
        [T, topk] = s / sum(s) * scaling.
    """
    check_route(x, gate_w, bias, tid2eid, topk=topk, scaling=scaling, batch=batch)
    check_choice(bias, tid2eid, experts=gate_w.shape[0], batch=batch)
    check_real("x", x)
    check_real("gate_w", gate_w)
    logits = linear(x.float(), gate_w.float())
    scores = (logits.clamp(min=0) + torch.log1p(torch.exp(-logits.abs()))).sqrt()
    if tid2eid is not None:
        ids = tid2eid[batch.token_ids.long()].long()
    else:
        ranked = scores if bias is None else scores + bias
        ids = ranked.sort(dim=-1, descending=True, stable=True).indices[:, :topk]
    weights = scores.gather(1, ids)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * scaling
    return ids.int(), weights


def swiglu(gate: Tensor, up: Tensor, limit: float | None) -> Tensor:
    """silu(min(gate, limit)) * clamp(up, -limit, limit); limit None or <= 0: no clamp."""
    if limit is not None and limit > 0:
        gate, up = gate.clamp(max=limit), up.clamp(min=-limit, max=limit)
    return torch.nn.functional.silu(gate) * up


def check_experts(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    *,
    limit: float | None,
) -> None:
    """Refuse what would be read out of bounds; shared by all implementations."""
    tokens, hidden = sizes("x", x, 2)
    experts, double, _ = sizes("gate_up", gate_up, 3)
    check_shape("gate_up", gate_up, experts, double, hidden)
    if double % 2:
        refuse("gate_up", f"{double} rows an expert", "an even number: gate rows, then up rows")
    check_shape("down", down, experts, hidden, double // 2)
    check_int32("ids", ids, tokens, -1)
    check_shape("weights", weights, tokens, ids.shape[1])
    check_float("weights", weights)
    check_limit(limit)


def check_same_dtype(x: Tensor, **weights: Tensor) -> None:
    """Refuse weights of another dtype than x, where a product is plain torch's."""
    for name, weight in weights.items():
        if weight.dtype is not x.dtype:
            refuse(name, weight.dtype, f"{x.dtype}, that of x")


def check_shared(
    x: Tensor, gate_w: Tensor, up_w: Tensor, down_w: Tensor, *, limit: float | None
) -> None:
    """Refuse what would be read out of bounds; shared by all implementations."""
    _, hidden = sizes("x", x, 2)
    inner, _ = sizes("gate_w", gate_w, 2)
    check_shape("gate_w", gate_w, inner, hidden)
    check_shape("up_w", up_w, inner, hidden)
    check_shape("down_w", down_w, hidden, inner)
    check_limit(limit)


def experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, *, limit: float | None
) -> Tensor:
    """Sum over each token's experts of weight * down(swiglu(gate(x), up(x))).

    Args:
        x: [T, H].
        ids: int32 [T, K].
        weights: fp32 [T, K].
        gate_up: [E, 2 * I, H], gate rows first.
        down: [E, H, I].
        limit: clamp of the pre-activations; None or <= 0: none.


    Returns: [T, H] in x's dtype, accumulated in fp32 in ascending expert id.
    """
    check_experts(x, ids, weights, gate_up, down, limit=limit)
    check_same_dtype(x, gate_up=gate_up, down=down)
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert, token, pick in expert_groups(ids, gate_up.shape[0]):
        gate, up = linear(x[token], gate_up[expert]).chunk(2, dim=-1)
        part = linear(swiglu(gate, up, limit), down[expert]).float()
        out.index_add_(0, token, part * weights.flatten()[pick][:, None])
    return out.to(x.dtype)


def expert_groups(ids: Tensor, experts: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(expert, its tokens int64 [N], places in the flattened ids int64 [N]), by ascending expert.

    Raises: ValueError: an id without an expert.
    """
    flat = ids.flatten().long()
    if flat.numel() and int(flat.min()) < 0:
        refuse("ids", f"expert {int(flat.min())}", f"0..{experts - 1}")
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=experts).tolist()
    if len(counts) > experts:
        refuse("ids", f"expert {len(counts) - 1}", f"0..{experts - 1}")
    first = 0
    for expert, count in enumerate(counts):
        if count:
            pick = order[first : first + count]
            first += count
            yield expert, pick // ids.shape[1], pick


def shared_expert(
    x: Tensor, gate_w: Tensor, up_w: Tensor, down_w: Tensor, *, limit: float | None
) -> Tensor:
    """down(swiglu(gate(x), up(x))) for every token, not scaled.

    Args:
        x: [T, H].
        gate_w: [I, H].
        up_w: [I, H].
        down_w: [H, I].
        limit: clamp of the pre-activations; None or <= 0: none.
    """
    check_shared(x, gate_w, up_w, down_w, limit=limit)
    check_same_dtype(x, gate_w=gate_w, up_w=up_w, down_w=down_w)
    return linear(swiglu(linear(x, gate_w), linear(x, up_w), limit), down_w)
