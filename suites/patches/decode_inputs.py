"""Inputs for decode attention: several sequences, one token each or a chunk, rows [B, S, D]."""

import math
from typing import Any

import torch
from torch import Tensor

from fidelity.tensors import Op
from reference.attention import sparse_attention as true_attention
from suites.patches.paged import Pages, positions_of, sequences_of

PAGE = 16


def paged_attention(op: Op, stored: Op | None = None, counts: tuple[int, ...] | None = None) -> Op:
    """A bound `sparse_attention` as a function of plain tensors: it builds the pages.

    `stored` packs a pool; None leaves it as it is. `counts` as in `Pages`.
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
        pages = Pages(positions, math.lcm(PAGE, m or 1), counts=counts)
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


MIXED = (1, 6, 1, 1, 17, 1)
"""Tokens of each sequence in a mixed batch: decode before, between and after prefill."""


def mixed_attention(op: Op) -> Op:
    """The same for a batch of decode tokens and prefill chunks: `positions` are the last ones."""

    def run(counts: tuple[int, ...], positions: Tensor, **given: Any) -> Tensor:
        made: Tensor = paged_attention(op, counts=counts)(positions=positions, **given)
        return made

    return run


def token_by_token(op: Op) -> Op:
    """A function of sequences with one token each, on a mixed batch: rows repeated for each."""

    def run(
        counts: tuple[int, ...], positions: Tensor, kv: Tensor, entries: Tensor | None, **given: Any
    ) -> Tensor:
        rows = sequences_of(counts).to(kv.device)
        made: Tensor = op(
            kv=kv[rows],
            entries=None if entries is None else entries[rows],
            positions=positions_of(positions, counts),
            **given,
        )
        return made

    return run


def mixed(generator: torch.Generator, positions: list[int], **shape: Any) -> dict[str, Any]:
    """Arguments of one call on a batch of MIXED, whose sequences end at these positions."""
    tokens = positions_of(torch.tensor(positions), MIXED).tolist()
    given = sequences(generator, tokens, **shape)
    first = [sum(MIXED[:b]) for b in range(len(MIXED))]  # rows of a sequence's first token
    alone = {"kv": given["kv"], "entries": given["entries"]}
    held = {name: None if rows is None else rows[first] for name, rows in alone.items()}
    return {**given, **held, "positions": torch.tensor(positions), "counts": MIXED}


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
) -> dict[str, Any]:
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
