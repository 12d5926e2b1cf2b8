"""Triton kernels of patch `indexer_triton`; what they compute: kernels/indexer_triton.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.batch import PagedBatch
from kernels.gpu.launch import check_device, is_interpreted, next_power_of_2
from kernels.gpu.rounding import e2m1, e4m3, e8m0, to_bf16
from kernels.index_keys import KeyStorage, walsh_hadamard
from kernels.indexer_triton import check_decode

BLOCK_S = 64
CHUNK = 1024
FLOAT, FP8, FP4, INT4 = range(4)
KINDS = {"fp32": FLOAT, "bf16": FLOAT, "fp8": FP8, "fp4": FP4, "int4": INT4}


@triton.jit
def _scores(
    q_ptr, weights_ptr, codes_ptr, scales_ptr, positions_ptr, seq_ptr, table_ptr, out_ptr,
    heads, dim, max_pages, slots, longest, m, weight_stride, code_bytes,
    KIND: tl.constexpr, SCALES: tl.constexpr, ROW: tl.constexpr, GROUP: tl.constexpr,
    H: tl.constexpr, D: tl.constexpr, BLOCK_S: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64)
    visible = (tl.load(positions_ptr + t) + 1) // m
    first = tl.program_id(1) * BLOCK_S
    if first < visible:  # nothing is read or written past the real length
        s, h, d = first + tl.arange(0, BLOCK_S), tl.arange(0, H), tl.arange(0, D)
        real, inside = s < visible, d < dim
        table = table_ptr + tl.load(seq_ptr + t).to(tl.int64) * max_pages
        row = tl.load(table + s // slots, mask=real, other=0).to(tl.int64) * slots + s % slots
        mask = real[:, None] & inside[None, :]
        if KIND == 0:
            keys = tl.load(codes_ptr + row[:, None] * dim + d[None, :], mask=mask, other=0.0)
            keys = keys.to(tl.float32)
        elif KIND == 1:
            raw = tl.load(codes_ptr + row[:, None] * dim + d[None, :], mask=mask, other=0)
            keys = e4m3(raw.to(tl.int32))
        else:
            at = row[:, None] * code_bytes + (d // 2)[None, :]
            raw = tl.load(codes_ptr + at, mask=mask, other=0).to(tl.int32)
            raw = (raw >> (4 * (d % 2))[None, :]) & 15
            keys = e2m1(raw) if KIND == 2 else tl.where(raw < 8, raw, raw - 16).to(tl.float32)
        if SCALES > 0 and not ROW:
            at = row[:, None] * SCALES + (d // GROUP)[None, :]
            scale = tl.load(scales_ptr + at, mask=mask, other=0)
            keys *= e8m0(scale.to(tl.int32)) if KIND == 2 else scale.to(tl.float32)
        q_at = (t * heads + h)[:, None] * dim + d[None, :]
        q = tl.load(q_ptr + q_at, mask=(h < heads)[:, None] & inside[None, :], other=0.0)
        dots = tl.dot(to_bf16(keys, EMULATE), tl.trans(to_bf16(q, EMULATE)))
        dots = tl.where((h < heads)[None, :], dots, 0.0)  # 0 x Inf of a head that is not there
        dots = tl.where(dots > 0, dots, tl.where(dots == dots, 0.0, dots))  # a relu that keeps NaN
        w = tl.load(weights_ptr + t * weight_stride + h, mask=h < heads, other=0.0)
        made = tl.sum(dots * w.to(tl.float32)[None, :], axis=1)
        if ROW:
            scale = tl.load(scales_ptr + row, mask=real, other=0)
            made *= e8m0(scale.to(tl.int32)) if KIND == 2 else scale.to(tl.float32)
        tl.store(out_ptr + t * longest + s, made, mask=real)


@triton.jit
def _ordered(scores):
    """int64 that orders as the scores do: NaN as -inf, -0 as 0."""
    scores = tl.where(scores == scores, scores, float("-inf"))
    scores = tl.where(scores == 0.0, 0.0, scores)
    bits = scores.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) + 2147483648


@triton.jit
def _topk(
    scores_ptr, positions_ptr, out_ptr, longest, m, topk, CHUNK: tl.constexpr
):  # fmt: skip
    """The border is found bit by bit; then all above it are written, and ties from the front."""
    t = tl.program_id(0).to(tl.int64)
    visible = (tl.load(positions_ptr + t) + 1) // m
    at = tl.arange(0, CHUNK)
    border = tl.full((), -1, dtype=tl.int64)  # below every score: all are taken
    above = 0
    if visible > topk:
        border = tl.zeros((), dtype=tl.int64)
        for bit in range(32):
            guess = border | (tl.full((), 1, dtype=tl.int64) << (31 - bit))
            count = 0
            for first in range(0, visible, CHUNK):
                real = first + at < visible
                row = tl.load(scores_ptr + t * longest + first + at, mask=real, other=0.0)
                count += tl.sum((real & (_ordered(row) >= guess)).to(tl.int32), axis=0)
            border = tl.where(count >= topk, guess, border)
        for first in range(0, visible, CHUNK):
            real = first + at < visible
            row = tl.load(scores_ptr + t * longest + first + at, mask=real, other=0.0)
            above += tl.sum((real & (_ordered(row) > border)).to(tl.int32), axis=0)
    ties = topk - above
    written, tied = 0, 0
    for first in range(0, visible, CHUNK):
        real = first + at < visible
        row = tl.load(scores_ptr + t * longest + first + at, mask=real, other=0.0)
        key = _ordered(row)
        equal = (real & (key == border)).to(tl.int32)
        rank = tied + tl.cumsum(equal, axis=0)
        take = real & ((key > border) | ((equal == 1) & (rank <= ties)))
        taken = take.to(tl.int32)
        place = written + tl.cumsum(taken, axis=0) - 1
        tl.store(out_ptr + t * topk + place, (first + at).to(tl.int32), mask=take)
        written += tl.sum(taken, axis=0)
        tied += tl.sum(equal, axis=0)


def index_select(
    q: Tensor, weights: Tensor, storage: KeyStorage, *, m: int, topk: int, batch: PagedBatch
) -> Tensor:
    """See kernels/indexer_triton.py."""
    check_decode(q, weights, storage, m=m, topk=topk, batch=batch)
    check_device("q", q, _scores)
    tokens = q.shape[0]
    out = torch.full((tokens, topk), -1, dtype=torch.int32, device=q.device)
    longest = int(batch.seq_lens.max()) // m if tokens else 0
    if not longest:
        return out
    scores = torch.empty((tokens, longest), dtype=torch.float32, device=q.device)
    run_scores(q, weights, storage, scores, m=m, batch=batch)
    _topk[(tokens,)](scores, batch.positions, out, longest, m, topk, CHUNK=CHUNK)
    return out


def run_scores(
    q: Tensor, weights: Tensor, storage: KeyStorage, scores: Tensor, *, m: int, batch: PagedBatch
) -> None:
    """Write fp32 [T, longest] where a token has entries; the rest stays as it was."""
    tokens, heads, dim = q.shape
    if storage.format.rotate:
        q = walsh_hadamard(q.float())
    codes, scales, kind = storage.codes, storage.scales, KINDS[storage.format.name]
    if kind == FP8:
        codes = codes.view(torch.uint8)
    per_row = 0 if scales is None else scales.shape[-1]
    weights = weights if weights.stride(1) == 1 else weights.contiguous()
    _scores[(tokens, triton.cdiv(scores.shape[1], BLOCK_S))](
        q.contiguous(), weights, codes, codes if scales is None else scales, batch.positions,
        batch.token_seq, batch.page_table.contiguous(), scores, heads, dim,
        batch.page_table.shape[1], storage.slots, scores.shape[1], m, weights.stride(0),
        codes.shape[-1], KIND=kind, SCALES=per_row, ROW=storage.format.scale == "row",
        GROUP=dim // max(1, per_row), H=max(16, next_power_of_2(heads)),
        D=max(16, next_power_of_2(dim)), BLOCK_S=BLOCK_S, EMULATE=is_interpreted(_scores),
    )  # fmt: skip
