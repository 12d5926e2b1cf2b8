"""Triton kernel of patch `moe_routed_scaling`; what it computes: kernels/moe_routed_scaling.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.launch import check_device, next_power_of_2
from kernels.moe_routed_scaling import TINY


@triton.jit
def _softplus_root(v):
    return tl.sqrt(tl.where(v > 0, v, tl.where(v == v, 0.0, v)) + _log1p(tl.exp(-tl.abs(v))))


@triton.jit
def _log1p(e):
    """log(1 + e) for 0 <= e <= 1 without losing small e."""
    u = 1.0 + e
    return tl.where(u == 1.0, e, tl.log(u) * (e / tl.where(u == 1.0, 1.0, u - 1.0)))


@triton.jit
def _choose(
    logits_ptr, bias_ptr, given_ptr, ids_ptr, weights_ptr, experts, scaling, tiny,
    TOPK: tl.constexpr, SLOTS: tl.constexpr, E: tl.constexpr,
    HAS_BIAS: tl.constexpr, GIVEN: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, E)
    real = e < experts
    logits = tl.load(logits_ptr + t * experts + e, mask=real, other=0.0)
    scores = _softplus_root(logits)
    ranked = scores
    if HAS_BIAS:
        ranked += tl.load(bias_ptr + e, mask=real, other=0.0)
    ranked = tl.where(ranked == ranked, ranked, float("inf"))
    slot = tl.arange(0, SLOTS)
    ids = tl.zeros((SLOTS,), dtype=tl.int32)
    chosen = tl.zeros((SLOTS,), dtype=tl.float32)
    free = real
    for k in tl.static_range(TOPK):
        if GIVEN:
            best = tl.load(given_ptr + t * TOPK + k).to(tl.int32)
        else:
            top = tl.max(tl.where(free, ranked, float("-inf")), axis=0)
            # -inf beats a taken expert: the lowest free id among the equal ones
            best = tl.min(tl.where(free & (ranked == top), e, E), axis=0).to(tl.int32)
            free = free & (e != best)
        score = tl.sum(tl.where(e == best, scores, 0.0), axis=0)
        ids = tl.where(slot == k, best, ids)
        chosen = tl.where(slot == k, score, chosen)
    weights = chosen * (scaling / (tl.sum(chosen, axis=0) + tiny))
    tl.store(ids_ptr + t * TOPK + slot, ids, mask=slot < TOPK)
    tl.store(weights_ptr + t * TOPK + slot, weights, mask=slot < TOPK)


def choose(
    logits: Tensor, bias: Tensor | None, ids: Tensor | None, topk: int, scaling: float
) -> tuple[Tensor, Tensor]:
    """See kernels/moe_routed_scaling.py."""
    check_device("logits", logits, _choose)
    tokens, experts = logits.shape
    made = torch.empty((tokens, topk), dtype=torch.int32, device=logits.device)
    weights = torch.empty((tokens, topk), dtype=torch.float32, device=logits.device)
    if tokens:
        logits = logits.contiguous()
        _choose[(tokens,)](
            logits,
            logits if bias is None else bias.contiguous(),
            logits if ids is None else ids.contiguous(),
            made, weights, experts, scaling, TINY,
            TOPK=topk, SLOTS=next_power_of_2(topk), E=next_power_of_2(experts),
            HAS_BIAS=bias is not None, GIVEN=ids is not None,
        )  # fmt: skip
    return made, weights
