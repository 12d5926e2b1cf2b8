"""Triton kernels of patch `splitk_decode`; what they compute: kernels/splitk_decode.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.batch import PagedBatch
from kernels.fp8_rows import Fp8Rows
from kernels.gpu.launch import check_device, is_interpreted, next_power_of_2
from kernels.gpu.rounding import e4m3, e8m0, to_bf16
from kernels.splitk_decode import SPLIT, Pool, check_splitk

BLOCK_H = 16  # heads of a program: the least that a tensor-core product takes


@triton.jit
def _rows(
    base, scales, tail, row, d, mask,
    DIM: tl.constexpr, PLAIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """fp32 rows of a pool: floats where BLOCK is 0, else e4m3 codes, scales and a bf16 tail."""
    if BLOCK == 0:
        return tl.load(base + row[:, None] * DIM + d[None, :], mask=mask, other=0.0).to(tl.float32)
    else:
        plain = (d < PLAIN)[None, :]
        codes = tl.load(base + row[:, None] * PLAIN + d[None, :], mask=mask & plain, other=0)
        at = row[:, None] * (PLAIN // BLOCK) + (d // BLOCK)[None, :]
        scale = tl.load(scales + at, mask=mask & plain, other=127)
        at = row[:, None] * (DIM - PLAIN) + (d - PLAIN)[None, :]
        turned = tl.load(tail + at, mask=mask & (d >= PLAIN)[None, :], other=0.0)
        values = e4m3(codes.to(tl.int32)) * e8m0(scale.to(tl.int32))
        return tl.where(plain, values, turned.to(tl.float32))


@triton.jit
def _split(
    q_ptr, window_ptr, window_scales, window_tail, entries_ptr, entries_scales, entries_tail,
    selected_ptr, positions_ptr, seq_ptr, table_ptr, out_ptr,
    lse_ptr, heads, max_pages, window, entries, page_size, m, scale,
    DIM: tl.constexpr, D: tl.constexpr, SPLIT: tl.constexpr, BLOCK_H: tl.constexpr,
    HAS_ENTRIES: tl.constexpr, SELECTED: tl.constexpr, PLAIN: tl.constexpr, BLOCK: tl.constexpr,
    EMULATE: tl.constexpr,
):  # fmt: skip
    t, split = tl.program_id(0).to(tl.int64), tl.program_id(2)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    d = tl.arange(0, D)
    live, inside = h < heads, d < DIM
    position = tl.load(positions_ptr + t)
    table = table_ptr + tl.load(seq_ptr + t).to(tl.int64) * max_pages
    at = split * SPLIT + tl.arange(0, SPLIT)
    token = position - window + 1 + at
    in_window = (at < window) & (token >= 0)
    page = tl.load(table + tl.where(in_window, token, 0) // page_size, mask=in_window, other=0)
    row = page.to(tl.int64) * page_size + tl.where(in_window, token, 0) % page_size
    mask = in_window[:, None] & inside[None, :]
    keys = _rows(window_ptr, window_scales, window_tail, row, d, mask, DIM, PLAIN, BLOCK)
    seen = in_window
    if HAS_ENTRIES:
        place = at - window
        listed = (place >= 0) & (place < entries)
        if SELECTED:
            entry = tl.load(selected_ptr + t * entries + place, mask=listed, other=-1)
        else:
            entry = place
        real = listed & (entry >= 0) & (entry < (position + 1) // m)
        entry = tl.where(real, entry, 0)
        per_page = page_size // m
        page = tl.load(table + entry // per_page, mask=real, other=0)
        row = page.to(tl.int64) * per_page + entry % per_page
        mask = real[:, None] & inside[None, :]
        more = _rows(entries_ptr, entries_scales, entries_tail, row, d, mask, DIM, PLAIN, BLOCK)
        keys = tl.where(real[:, None], more, keys)
        seen = seen | real
    keys = to_bf16(keys, EMULATE)
    q_at = (t * heads + h)[:, None] * DIM + d[None, :]
    q = tl.load(q_ptr + q_at, mask=live[:, None] & inside[None, :], other=0.0)
    scores = tl.dot(to_bf16(q, EMULATE), tl.trans(keys)) * scale
    scores = tl.where(seen[None, :], scores, float("-inf"))
    top = tl.max(scores, axis=1)
    top = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp(scores - top[:, None])
    total = tl.sum(weights, axis=1)
    out = tl.dot(to_bf16(weights, EMULATE), keys)
    empty = total == 0.0
    out = out / tl.where(empty, 1.0, total)[:, None]
    lse = tl.where(empty, float("-inf"), top + tl.log(tl.where(empty, 1.0, total)))
    splits = tl.num_programs(2)
    base = (t * splits + split) * heads + h
    tl.store(out_ptr + base[:, None] * DIM + d[None, :], out, mask=live[:, None] & inside[None, :])
    tl.store(lse_ptr + base, lse, mask=live)


@triton.jit
def _merge(
    parts_ptr, lse_ptr, sinks_ptr, out_ptr, heads, splits,
    DIM: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    t, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, s = tl.arange(0, D), tl.arange(0, SPLITS)
    inside = d < DIM
    sink = tl.load(sinks_ptr + h).to(tl.float32)
    lse = tl.load(lse_ptr + (t * splits + s) * heads + h, mask=s < splits, other=float("-inf"))
    top = tl.maximum(tl.max(lse, axis=0), sink)
    total = tl.sum(tl.exp(lse - top), axis=0) + tl.exp(sink - top)
    out = tl.zeros((D,), dtype=tl.float32)
    for split in range(splits):
        row = (t * splits + split) * heads + h
        share = tl.exp(tl.load(lse_ptr + row) - top)
        out += share * tl.load(parts_ptr + row * DIM + d, mask=inside, other=0.0)
    tl.store(out_ptr + (t * heads + h) * DIM + d, out / total, mask=inside)


def splitk_decode(
    q: Tensor,
    window_pool: Pool,
    entries_pool: Pool | None,
    selected: Tensor | None,
    sinks: Tensor,
    *,
    window: int,
    m: int | None,
    scale: float,
    batch: PagedBatch,
) -> Tensor:
    """See kernels/splitk_decode.py."""
    check_splitk(
        q, window_pool, entries_pool, selected, sinks, window=window, m=m, scale=scale, batch=batch
    )
    check_device("q", q, _split)
    tokens, heads, dim = q.shape
    entries = 0
    if entries_pool is not None and m is not None:
        entries = int(batch.seq_lens.max()) // m if selected is None else selected.shape[1]
    splits = max(1, triton.cdiv(window + entries, SPLIT))
    parts = torch.empty((tokens, splits, heads, dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((tokens, splits, heads), dtype=torch.float32, device=q.device)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not tokens:
        return out
    padded = max(16, next_power_of_2(dim))
    block, plain = 0, dim
    if isinstance(window_pool, Fp8Rows):
        block, plain = window_pool.block, window_pool.codes.shape[2]
    _split[(tokens, triton.cdiv(heads, BLOCK_H), splits)](
        q.contiguous(), *_pointers(window_pool),
        *_pointers(window_pool if entries_pool is None else entries_pool),
        batch.positions if selected is None else selected.contiguous(),
        batch.positions, batch.token_seq, batch.page_table.contiguous(), parts, lse, heads,
        batch.page_table.shape[1], window, entries, batch.page_size, m or 1, scale,
        DIM=dim, D=padded, SPLIT=SPLIT, BLOCK_H=BLOCK_H, HAS_ENTRIES=entries_pool is not None,
        SELECTED=selected is not None, PLAIN=plain, BLOCK=block, EMULATE=is_interpreted(_split),
    )  # fmt: skip
    _merge[(tokens, heads)](
        parts, lse, sinks.contiguous(), out, heads, splits,
        DIM=dim, D=padded, SPLITS=next_power_of_2(splits),
    )  # fmt: skip
    return out


def _pointers(pool: Pool) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and tail; a pool of floats stands for all three."""
    return pool if isinstance(pool, Fp8Rows) else (pool, pool, pool)
