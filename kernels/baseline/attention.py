"""Attention of each token over its sliding window and over compressed entries, with a sink."""

import torch
from torch import Tensor

from kernels.batch import PagedBatch
from kernels.checks import (
    check_int32,
    check_positive,
    check_rate,
    check_real,
    check_shape,
    check_whole,
    refuse,
    sizes,
)

CHUNK_ELEMENTS = 1 << 25  # gathered rows held at once: 128 MiB of fp32


def check_attention(
    q: Tensor,
    window_pool: Tensor,
    entries_pool: Tensor | None,
    selected: Tensor | None,
    sinks: Tensor,
    *,
    window: int,
    m: int | None,
    scale: float,
    batch: PagedBatch,
) -> None:
    """Refuse what would be read out of bounds; shared by all implementations.

    What page ids and selected entries are, each implementation looks at itself.
    """
    tokens, heads, dim = sizes("q", q, 3)
    check_shape("q", q, batch.positions.numel(), heads, dim)
    check_shape("window_pool", window_pool, -1, batch.page_size, dim)
    check_shape("sinks", sinks, heads)
    check_real("sinks", sinks)
    check_whole("window", window, "at least 1 token")
    check_positive("scale", scale)
    if entries_pool is None:
        if selected is not None:
            refuse("selected", "entry indices", "None without entries_pool")
        return
    check_rate(m, batch.page_size)
    check_shape("entries_pool", entries_pool, -1, batch.page_size // m, dim)  # type: ignore[operator]
    if selected is not None:
        check_int32("selected", selected, tokens, -1)


def check_pages(
    window_pool: Tensor,
    entries_pool: Tensor | None,
    selected: Tensor | None,
    *,
    m: int | None,
    batch: PagedBatch,
) -> None:
    """Refuse pages that the pools lack, and entries that no page can hold; on the CPU alone."""
    batch.check_pool("window_pool", window_pool.shape[0])
    if entries_pool is not None and m is not None:
        batch.check_pool("entries_pool", entries_pool.shape[0])
        if selected is not None:
            batch.check_selected(selected, m)


def sparse_attention(
    q: Tensor,
    window_pool: Tensor,
    entries_pool: Tensor | None,
    selected: Tensor | None,
    sinks: Tensor,
    *,
    window: int,
    m: int | None,
    scale: float,
    batch: PagedBatch,
) -> Tensor:
    """One softmax over window rows (pos - window + 1 .. pos), visible entries and the sink.

    Args:
        q: [T, Hq, D]; keys and values are the same rows, shared by all heads.
        window_pool: [P, page_size, D].
        entries_pool: [P, page_size // m, D], or None in a layer without entries.
        selected: int32 [T, K] entry indices, -1 padded; an index that the token cannot see yet is
            ignored, one that no page of `page_table` can hold is refused. None: every visible
            entry (w < (pos + 1) // m).
        sinks: fp32 [Hq], an extra logit with value 0, not scaled.
        window: tokens, including the token itself.
        m: tokens of an entry; None without entries.
        scale: multiplied into the scores of keys before the softmax.
        batch: positions and pages.

    Returns: [T, Hq, D] in q's dtype.
    """
    check_attention(
        q, window_pool, entries_pool, selected, sinks, window=window, m=m, scale=scale, batch=batch
    )
    check_pages(window_pool, entries_pool, selected, m=m, batch=batch)
    out = torch.empty_like(q)
    keys = window
    if entries_pool is not None and m is not None:
        keys += int(batch.seq_lens.max()) // m if selected is None else selected.shape[1]
    step = max(1, CHUNK_ELEMENTS // (keys * q.shape[-1]))
    for first in range(0, q.shape[0], step):
        part = slice(first, first + step)
        rows, visible = window_rows(window_pool, part, window, batch)
        if entries_pool is not None and m is not None:
            more, seen = entry_rows(entries_pool, selected, part, m, batch)
            rows, visible = torch.cat((rows, more), dim=1), torch.cat((visible, seen), dim=1)
        out[part] = _attend(q[part], rows, visible, sinks, scale).to(q.dtype)
    return out


def _attend(q: Tensor, rows: Tensor, visible: Tensor, sinks: Tensor, scale: float) -> Tensor:
    """Rows that are not visible may hold anything, NaN included."""
    rows = rows.float().masked_fill(~visible[..., None], 0.0)
    scores = torch.einsum("thd,tsd->ths", q.float(), rows) * scale
    scores = scores.masked_fill(~visible[:, None], float("-inf"))
    sink = sinks.float()[None, :, None].expand(q.shape[0], -1, 1)
    weights = torch.softmax(torch.cat((scores, sink), dim=-1), dim=-1)[..., :-1]
    return torch.einsum("ths,tsd->thd", weights, rows)


def window_rows(pool: Tensor, part: slice, window: int, batch: PagedBatch) -> tuple[Tensor, Tensor]:
    """Rows [T, window, D] of each token's window, oldest first, and which of them there are."""
    position = batch.positions[part].long()
    at = position[:, None] - torch.arange(window - 1, -1, -1, device=pool.device)
    before = at.clamp(min=0)
    seq = batch.token_seq[part].long()[:, None]
    page = batch.page_table[seq, before // batch.page_size].long()
    return pool[page, before % batch.page_size], at >= 0


def entry_rows(
    pool: Tensor, selected: Tensor | None, part: slice, m: int, batch: PagedBatch
) -> tuple[Tensor, Tensor]:
    """Rows [T, K, D] of each token's entries, and which of them it may see."""
    seen = ((batch.positions[part].long() + 1) // m)[:, None]
    if selected is None:
        index = torch.arange(int(seen.max()), device=pool.device).expand(seen.shape[0], -1)
    else:
        index = selected[part].long()
    visible = (index >= 0) & (index < seen)
    index = torch.where(visible, index, 0)
    seq = batch.token_seq[part].long()[:, None].expand_as(index)
    slots = batch.entry_slots(seq, index, m)
    return pool.view(-1, pool.shape[-1])[slots], visible
