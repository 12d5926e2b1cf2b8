"""Inputs for decode attention: several sequences, one token each, rows [B, S, D]."""

import math

import torch
from torch import Tensor

from fidelity.tensors import Op
from reference.attention import sparse_attention as true_attention
from suites.patches.paged import Pages

PAGE = 16


def paged_attention(op: Op, stored: Op | None = None) -> Op:
    """A bound `sparse_attention` as a function of plain tensors: it builds the pages.

    `stored` packs a pool; None leaves it as it is.
    """

    def run(
        q: Tensor,
        kv: Tensor,
        entries: Tensor | None,
        selected: Tensor | None,
        sinks: Tensor,
        positions: Tensor,
        window: int,
        m: int | None,
        scale: float,
    ) -> Tensor:
        pages = Pages(positions, math.lcm(PAGE, m or 1))
        pool = None if entries is None or m is None else pages.pool(entries, m)
        rows = pages.pool(kv)
        if stored is not None:
            rows, pool = stored(rows), None if pool is None else stored(pool)
        made: Tensor = op(
            q,
            rows,
            pool,
            selected,
            sinks.float(),
            window=window,
            m=m,
            scale=scale,
            batch=pages.batch,
        )
        return made

    return run


def true_sequences(
    q: Tensor,
    kv: Tensor,
    entries: Tensor | None,
    selected: Tensor | None,
    sinks: Tensor,
    positions: Tensor,
    window: int,
    m: int | None,
    scale: float,
) -> Tensor:
    """The reference, sequence by sequence, each with its own rows alone."""
    made = []
    for b in range(q.shape[0]):
        count = int(positions[b]) + 1
        made.append(
            true_attention(
                q[b : b + 1],
                kv[b, :count],
                None if entries is None or m is None else entries[b, : max(1, count // m)],
                None if selected is None else selected[b : b + 1],
                sinks,
                positions=positions[b : b + 1],
                window=window,
                m=m,
                scale=scale,
            )
        )
    return torch.cat(made)


def plain_bf16(
    q: Tensor,
    kv: Tensor,
    entries: Tensor | None,
    selected: Tensor | None,
    sinks: Tensor,
    positions: Tensor,
    window: int,
    m: int | None,
    scale: float,
) -> Tensor:
    """Plain torch in q's dtype: scores, weights and sums rounded to it at each step."""
    made = []
    for b in range(q.shape[0]):
        at = int(positions[b])
        keys = kv[b, max(0, at - window + 1) : at + 1]
        if entries is not None and m is not None:
            seen = (at + 1) // m
            picks = torch.arange(seen, device=q.device)
            if selected is not None:
                picks = selected[b].long()
                picks = picks[(picks >= 0) & (picks < seen)].unique()  # type: ignore[no-untyped-call]
            keys = torch.cat((keys, entries[b, picks]))
        scores = torch.cat(((q[b] @ keys.T) * scale, sinks.to(q.dtype)[:, None]), dim=1)
        made.append(torch.softmax(scores, dim=1)[:, :-1] @ keys)
    return torch.stack(made)


def sequences(
    generator: torch.Generator,
    positions: list[int],
    *,
    heads: int,
    dim: int,
    m: int | None,
    topk: int,
    window: int,
    sharp: float = 1.0,
) -> dict[str, object]:
    """Arguments of one call; `sharp` scales queries, so that few keys take all the weight."""
    count, longest = len(positions), max(positions) + 1
    entries = None if m is None else longest // m + 1
    selected = None
    if m is not None and topk:
        picks = [
            torch.randperm(max(1, (p + 1) // m), generator=generator)[:topk].sort().values
            for p in positions
        ]
        selected = torch.full((count, topk), -1, dtype=torch.int32)
        for row, pick in enumerate(picks):
            selected[row, : len(pick)] = pick.int()
    return {
        "q": torch.randn(count, heads, dim, generator=generator) * sharp,
        "kv": torch.randn(count, longest, dim, generator=generator),
        "entries": None
        if entries is None
        else torch.randn(count, entries, dim, generator=generator),
        "selected": selected,
        "sinks": torch.randn(heads, generator=generator),
        "positions": torch.tensor(positions),
        "window": window,
        "m": m,
        "scale": dim**-0.5,
    }
