"""Compressors: m tokens become one entry, by a softmax per channel over the window's slots.

Ring layout, [P, rows, 2 * C]: per row the raw kv (C channels), then the raw gate (C channels,
before `ape` is added), C = coff * D. The row of position p is p % rows in p's own page; rows = m,
or 2 * m with overlap, so that at a page's start the window before it lies in the previous page.
"""

import torch
from torch import Tensor

from kernels.baseline.norms import norm_rope
from kernels.batch import PagedBatch
from kernels.checks import check_rate, check_rope_dim, check_shape


def check_compress(
    kv: Tensor,
    gate: Tensor,
    ring: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    *,
    m: int,
    overlap: bool,
    rope_dim: int,
    batch: PagedBatch,
) -> None:
    """Refuse what would be read or written out of bounds; shared by all implementations."""
    check_rate(m, batch.page_size)
    channels = norm_weight.shape[0] * (2 if overlap else 1)
    check_shape("kv", kv, batch.positions.numel(), channels)
    check_shape("gate", gate, batch.positions.numel(), channels)
    check_shape("ape", ape, m, channels)
    check_shape("ring", ring, -1, m * (2 if overlap else 1), 2 * channels)
    check_rope_dim(rope_dim, norm_weight.shape[0])


def compress(
    kv: Tensor,
    gate: Tensor,
    ring: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    *,
    eps: float,
    m: int,
    overlap: bool,
    rope_dim: int,
    cos_sin: tuple[Tensor, Tensor],
    batch: PagedBatch,
) -> tuple[Tensor, Tensor, Tensor]:
    """Entries of the windows that this batch closes, RMS-normed and rotated at position w * m.

    Args:
        kv: [T, C], C = D, or 2 * D with overlap: the first half of the channels feeds the next
            window, the second half the current one.
        gate: [T, C], logits of the softmax, a channel each.
        ring: fp32 [P, rows, 2 * C], read for tokens before this batch, then updated.
        ape: fp32 [m, C], added to the gate.
        norm_weight: [D].
        eps: of the RMS norm.
        m: tokens of a window; a divisor of the page size.
        overlap: whether a window reads the one before it too.
        rope_dim: rotated channels at the end of an entry.
        cos_sin: tables fp32 [max_position, rope_dim / 2].
        batch: positions and pages.


    Returns: entries fp32 [N, D], entry_seq int32 [N], entry_index int32 [N], ascending.
    """
    check_compress(
        kv, gate, ring, ape, norm_weight, m=m, overlap=overlap, rope_dim=rope_dim, batch=batch
    )
    seq, index = batch.closed_entries(m)
    position = _slot_positions(index, m, overlap=overlap)
    values, scores = _gather_slots(kv, gate, ring, seq, position, batch)
    scores = scores + torch.cat((ape, ape) if overlap else (ape,)).float()
    if overlap:
        values, scores = _halves(values, m), _halves(scores, m)
    absent = position < 0
    values = values.masked_fill(absent[..., None], 0.0)
    scores = scores.masked_fill(absent[..., None], float("-inf"))
    entries = (torch.softmax(scores, dim=1) * values).sum(1)
    rows = index.long() * m
    cos, sin = (table[rows] for table in cos_sin)
    entries = norm_rope(entries[:, None], norm_weight, cos, sin, eps=eps, rope_dim=rope_dim)
    _update_ring(ring, kv, gate, batch)
    return entries[:, 0], seq, index


def _slot_positions(index: Tensor, m: int, *, overlap: bool) -> Tensor:
    """int64 [N, slots]; negative before the first window."""
    first = index.long() * m - (m if overlap else 0)
    return first[:, None] + torch.arange(m * (2 if overlap else 1), device=index.device)


def _halves(x: Tensor, m: int) -> Tensor:
    """The first m slots (previous window) take the first half of the channels."""
    half = x.shape[-1] // 2
    return torch.cat((x[:, :m, :half], x[:, m:, half:]), dim=1)


def _gather_slots(
    kv: Tensor, gate: Tensor, ring: Tensor, seq: Tensor, position: Tensor, batch: PagedBatch
) -> tuple[Tensor, Tensor]:
    """Rows of this batch where it has them, else rows of the ring; [N, slots, C] each, fp32."""
    start = batch.starts()[seq.long()][:, None]
    here = position >= start
    row = (batch.query_start.long()[seq.long()][:, None] + position - start).clamp(min=0)
    before = position.clamp(min=0)
    page = batch.page_table[seq.long()[:, None], before // batch.page_size].long().clamp(min=0)
    kept = ring[page, before % ring.shape[1]].float()
    channels = kv.shape[-1]
    values = torch.where(here[..., None], kv[row].float(), kept[..., :channels])
    return values, torch.where(here[..., None], gate[row].float(), kept[..., channels:])


def _update_ring(ring: Tensor, kv: Tensor, gate: Tensor, batch: PagedBatch) -> None:
    """Write only the rows that survive in each page, so that no row is written twice."""
    rows, size = ring.shape[1], batch.page_size

    def survivors() -> tuple[Tensor, Tensor, Tensor]:
        position, seq = batch.positions.long(), batch.token_seq.long()
        last = torch.minimum(batch.seq_lens.long()[seq], (position // size + 1) * size) - 1
        token = (position + rows > last).nonzero()[:, 0]
        page = batch.page_table[seq[token], position[token] // size].long()
        return token, page, position[token] % rows

    token, page, row = batch.derive(("survivors", rows), survivors)
    ring[page, row] = torch.cat((kv[token], gate[token]), dim=-1).to(ring.dtype)
