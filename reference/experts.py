"""Clamped SwiGLU, alone, in routed experts, and in the shared one."""

import torch
from torch import Tensor

from reference.arguments import check_shape, refuse, wide


def swiglu(gate: Tensor, up: Tensor, limit: float | None) -> Tensor:
    """silu(min(gate, limit)) * clamp(up, -limit, limit), elementwise.

    The gate is clamped above only, before silu. limit None or <= 0: no clamp.
    """
    gate, up = wide(gate), wide(up)
    if limit is not None and limit > 0:
        gate, up = gate.clamp(max=limit), up.clamp(min=-limit, max=limit)
    return gate * torch.sigmoid(gate) * up


def expert(
    x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, *, limit: float | None
) -> Tensor:
    """One expert on rows x [T, H]; w_gate and w_up [I, H], w_down [H, I]; returns [T, H]."""
    x = wide(x)
    check_shape("w_gate", w_gate, -1, x.shape[1])
    check_shape("w_up", w_up, w_gate.shape[0], x.shape[1])
    check_shape("w_down", w_down, -1, w_gate.shape[0])
    hidden = swiglu(x @ w_gate.to(x.dtype).T, x @ w_up.to(x.dtype).T, limit)
    return hidden @ w_down.to(x.dtype).T


def routed_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, *, limit: float | None
) -> Tensor:
    """Sum over each token's experts of weight * expert(x), [T, H].

    Args:
        x: [T, H].
        ids: int [T, K].
        weights: [T, K], scaling included.
        gate_up: [E, 2 * I, H], gate rows first.
        down: [E, H, I].
        limit: as in `swiglu`.

    Raises: ValueError: an id without an expert.
    """
    x = wide(x)
    check_shape("ids", ids, x.shape[0], -1)
    check_shape("weights", weights, *ids.shape)
    count, double, _ = gate_up.shape
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        refuse("ids", f"expert {int(ids.min())} .. {int(ids.max())}", f"0 .. {count - 1}")
    out = torch.zeros_like(x)
    for e in range(count):
        token, choice = (ids == e).nonzero(as_tuple=True)
        if token.numel():
            w_gate, w_up = gate_up[e, : double // 2], gate_up[e, double // 2 :]
            part = expert(x[token], w_gate, w_up, down[e], limit=limit)
            out.index_add_(0, token, part * weights[token, choice].to(x.dtype)[:, None])
    return out
