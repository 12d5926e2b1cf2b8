"""Triton kernel of patch `mhc_bf16`; what it computes: kernels/mhc_bf16.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.launch import check_device, is_interpreted, next_power_of_2
from kernels.gpu.rounding import to_bf16
from kernels.mhc_bf16 import BLOCK_K, check_mhc

BLOCK_T = 16  # the least that a tensor-core product takes


@triton.jit
def _add(total, lost, part):
    """Add to a sum and to what its roundings lost (Kahan); a sum that is not finite loses nothing.

    Tensor cores cut their sums off. Adding with `tl.dot`'s own accumulator, or with a bare `+`,
    which the compiler turns into that, errs by 1e-4 over the 28,672 channels of a large model.
    """
    part -= lost
    after = total + part
    return after, tl.where(after - after == 0.0, (after - total) - part, 0.0)


@triton.jit
def _mhc_pre(
    x_ptr, fn_ptr, base_ptr, scale_ptr, y_ptr, post_ptr, comb_ptr, tokens, hidden, rms_eps, hc_eps,
    N: tl.constexpr, NP: tl.constexpr, GATES: tl.constexpr, ITERS: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_H: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    live = t < tokens
    channels = N * hidden
    g = tl.arange(0, GATES)  # rows of fn: pre, then post
    c = tl.arange(0, NP * NP)
    j, k = c // NP, c % NP
    inside = (j < N) & (k < N)
    comb_row = 2 * N + j * N + k
    gates = tl.zeros((BLOCK_T, GATES), dtype=tl.float32)
    mixed = tl.zeros((BLOCK_T, NP * NP), dtype=tl.float32)
    squares = tl.zeros((BLOCK_T,), dtype=tl.float32)
    lost_gates, lost_mixed, lost_squares = gates, mixed, squares
    row = t.to(tl.int64)[:, None] * channels
    for first in range(0, channels, BLOCK_K):
        at = first + tl.arange(0, BLOCK_K)
        real = at < channels
        x = tl.load(x_ptr + row + at[None, :], mask=live[:, None] & real[None, :], other=0.0)
        x = to_bf16(x, EMULATE)
        w_gates = tl.load(
            fn_ptr + g[None, :] * channels + at[:, None],
            mask=(g < 2 * N)[None, :] & real[:, None], other=0.0,
        )  # fmt: skip
        w_comb = tl.load(
            fn_ptr + comb_row[None, :] * channels + at[:, None],
            mask=inside[None, :] & real[:, None], other=0.0,
        )  # fmt: skip
        wide = x.to(tl.float32)
        squares, lost_squares = _add(squares, lost_squares, tl.sum(wide * wide, axis=1))
        gates, lost_gates = _add(gates, lost_gates, tl.dot(x, to_bf16(w_gates, EMULATE)))
        mixed, lost_mixed = _add(mixed, lost_mixed, tl.dot(x, to_bf16(w_comb, EMULATE)))
    norm = 1.0 / tl.sqrt(squares / channels + rms_eps)
    s_pre, s_post, s_comb = tl.load(scale_ptr), tl.load(scale_ptr + 1), tl.load(scale_ptr + 2)
    b_gates = tl.load(base_ptr + g, mask=g < 2 * N, other=0.0).to(tl.float32)
    s_gates = tl.where(g < N, s_pre.to(tl.float32), s_post.to(tl.float32))
    gates = tl.sigmoid(gates * norm[:, None] * s_gates[None, :] + b_gates[None, :])
    post_at = (g >= N) & (g < 2 * N)
    tl.store(
        post_ptr + t[:, None] * N + (g - N)[None, :], 2 * gates,
        mask=live[:, None] & post_at[None, :],
    )  # fmt: skip
    b_comb = tl.load(base_ptr + comb_row, mask=inside, other=0.0).to(tl.float32)
    logits = mixed * norm[:, None] * s_comb.to(tl.float32) + b_comb[None, :]
    comb = tl.reshape(logits, (BLOCK_T, NP, NP))
    kept = tl.reshape(tl.broadcast_to(inside[None, :], (BLOCK_T, NP * NP)), (BLOCK_T, NP, NP))
    comb = tl.where(kept, comb, -1e30)  # padding stays finite: its rows are dropped below
    comb = tl.where(kept, tl.exp(comb - tl.max(comb, axis=2)[:, :, None]), 0.0)
    total = tl.sum(comb, axis=2)[:, :, None]
    comb = comb / tl.where(total == 0.0, 1.0, total) + hc_eps
    comb = tl.where(kept, comb, 0.0)
    comb = comb / (tl.sum(comb, axis=1)[:, None, :] + hc_eps)
    for _ in range(ITERS - 1):
        comb = tl.where(kept, comb / (tl.sum(comb, axis=2)[:, :, None] + hc_eps), 0.0)
        comb = tl.where(kept, comb / (tl.sum(comb, axis=1)[:, None, :] + hc_eps), 0.0)
    tl.store(
        comb_ptr + t[:, None] * (N * N) + (j * N + k)[None, :],
        tl.reshape(comb, (BLOCK_T, NP * NP)), mask=live[:, None] & inside[None, :],
    )  # fmt: skip
    for first in range(0, hidden, BLOCK_H):
        at = first + tl.arange(0, BLOCK_H)
        real = live[:, None] & (at < hidden)[None, :]
        y = tl.zeros((BLOCK_T, BLOCK_H), dtype=tl.float32)
        for stream in tl.static_range(N):
            weight = tl.sum(tl.where((g == stream)[None, :], gates, 0.0), axis=1) + hc_eps
            x = tl.load(x_ptr + row + stream * hidden + at[None, :], mask=real, other=0.0)
            y += weight[:, None] * x.to(tl.float32)
        tl.store(y_ptr + t.to(tl.int64)[:, None] * hidden + at[None, :], y, mask=real)


def mhc_pre(
    streams: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    *,
    rms_eps: float,
    hc_eps: float,
    iters: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """See kernels/mhc_bf16.py."""
    check_mhc(streams, fn, base, scale, eps=(rms_eps, hc_eps), iters=iters)
    check_device("streams", streams, _mhc_pre)
    tokens, n, hidden = streams.shape
    y = torch.empty((tokens, hidden), dtype=streams.dtype, device=streams.device)
    post = torch.empty((tokens, n), dtype=torch.float32, device=streams.device)
    comb = torch.empty((tokens, n, n), dtype=torch.float32, device=streams.device)
    if tokens:
        padded = max(4, next_power_of_2(n))
        _mhc_pre[(triton.cdiv(tokens, BLOCK_T),)](
            streams.contiguous(), fn.contiguous(), base.contiguous(), scale.contiguous(),
            y, post, comb, tokens, hidden, rms_eps, hc_eps,
            N=n, NP=padded, GATES=max(16, next_power_of_2(2 * n)), ITERS=iters,
            BLOCK_T=BLOCK_T, BLOCK_K=BLOCK_K, BLOCK_H=min(256, next_power_of_2(hidden)),
            EMULATE=is_interpreted(_mhc_pre),
        )  # fmt: skip
    return y, post, comb
