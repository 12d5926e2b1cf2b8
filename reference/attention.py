"""Attention of a token over its sliding window, compressed entries and a sink, and its output.

Keys and values are the same rows, one head for all query heads. One softmax over everything.
"""

import torch
from torch import Tensor

from reference.arguments import check_shape, refuse, wide


def sparse_attention(
    q: Tensor,
    kv: Tensor,
    entries: Tensor | None,
    selected: Tensor | None,
    sinks: Tensor,
    *,
    positions: Tensor,
    window: int,
    m: int | None,
    scale: float,
) -> Tensor:
    """softmax(scale * q . keys, sink) times the values; the sink's value is zero.

    Args:
        q: [T, Hq, D], rotated.
        kv: [S, D], rotated, of positions 0 .. S - 1; a token at p sees p - window + 1 .. p.
        entries: [E, D] compressed entries 0 .. E - 1, or None in a layer without.
        selected: int [T, K], entries that each token may read, -1 for none; an entry that it
            cannot see yet is ignored. None: every visible one, w < (p + 1) // m.
        sinks: [Hq], an extra logit for each head, not scaled.
        positions: int [T], each < S.
        window: tokens, the token itself included; >= 1.
        m: tokens of an entry; None without entries.
        scale: D^-0.5 in V4.

    Returns: [T, Hq, D]; its last R channels are still to be turned back.
    Raises: ValueError: a position without a kv row, a selected entry that does not exist.
    """
    tokens, heads, dim = q.shape
    check_shape("kv", kv, -1, dim)
    check_shape("sinks", sinks, heads)
    check_shape("positions", positions, tokens)
    if window < 1:
        refuse("window", window, "at least 1 token")
    if tokens and not 0 <= int(positions.min()) <= int(positions.max()) < kv.shape[0]:
        refuse("positions", f"up to {int(positions.max())}", f"0 .. {kv.shape[0] - 1}")
    q = wide(q)
    keys, seen = kv.to(q.dtype), _window_mask(positions, kv.shape[0], window)
    if entries is not None:
        check_shape("entries", entries, -1, dim)
        keys = torch.cat((keys, entries.to(q.dtype)))
        seen = torch.cat((seen, _entry_mask(positions, entries.shape[0], selected, m)), dim=1)
    out = torch.empty_like(q)
    for t in range(tokens):
        out[t] = _attend(q[t], keys[seen[t]], sinks.to(q.dtype), scale)
    return out


def _window_mask(positions: Tensor, rows: int, window: int) -> Tensor:
    at = torch.arange(rows, device=positions.device)
    return (at <= positions[:, None]) & (at > positions[:, None] - window)


def _entry_mask(positions: Tensor, entries: int, selected: Tensor | None, m: int | None) -> Tensor:
    if m is None or m < 1:
        refuse("m", m, "at least 1 token where there are entries")
    at = torch.arange(entries, device=positions.device)
    visible = at < ((positions + 1) // m)[:, None]
    if selected is None:
        return visible
    check_shape("selected", selected, positions.shape[0], -1)
    if selected.numel() and not -1 <= int(selected.min()) <= int(selected.max()) < entries:
        refuse("selected", f"entry {int(selected.max())}", f"-1 .. {entries - 1}")
    chosen = torch.zeros_like(visible)
    for t in range(positions.shape[0]):
        chosen[t, selected[t][selected[t] >= 0].long()] = True
    return visible & chosen


def _attend(q: Tensor, keys: Tensor, sinks: Tensor, scale: float) -> Tensor:
    """One query [Hq, D] over the keys that it sees, and over no other: [Hq, D]."""
    scores = torch.cat((q @ keys.T * scale, sinks[:, None]), dim=1)
    weights = torch.softmax(scores, dim=1)
    return weights[:, :-1] @ keys


def grouped_output(o: Tensor, w_a: Tensor, w_b: Tensor, *, groups: int) -> Tensor:
    """Project each group of neighbouring heads by its own matrix, then all together.

    Args:
        o: [T, Hq, D].
        w_a: [groups * r, Hq * D / groups]; row g * r + i is output i of group g.
        w_b: [H, groups * r].
        groups: a divisor of Hq * D.

    Returns: [T, H].
    """
    flat = wide(o).flatten(1)
    if groups < 1 or flat.shape[1] % groups or w_a.shape[0] % groups:
        refuse("groups", groups, f"a divisor of {flat.shape[1]} and of {w_a.shape[0]}")
    width, rank = flat.shape[1] // groups, w_a.shape[0] // groups
    check_shape("w_a", w_a, groups * rank, width)
    check_shape("w_b", w_b, -1, groups * rank)
    parts = [
        flat[:, g * width : (g + 1) * width] @ w_a[g * rank : (g + 1) * rank].to(flat.dtype).T
        for g in range(groups)
    ]
    return torch.cat(parts, dim=1) @ w_b.to(flat.dtype).T
