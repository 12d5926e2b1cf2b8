"""Inputs for the indexer: several sequences, one token each, keys [B, E, Di], a planted needle.

A needle is an entry that answers its query: it points along the queries of the heads that count
for it, so that its true score is the highest of its row by far.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fidelity.tensors import Op, SelectionComparison, compare_selection
from kernels import Ops
from reference.indexer import index_scores, select
from suites.patches.decode_inputs import MIXED
from suites.patches.paged import Pages, positions_of, sequences_of

M = 4
PAGE = 64
NEEDLE_TOKENS = (1_000, 2_500, 5_000, 10_000, 22_000)


def selecting(ops: Ops, counts: tuple[int, ...] | None = None) -> Op:
    """Bound `store` and `index_select` as a function of plain tensors: it builds the pages.

    `counts` as in `Pages`.
    """

    def run(q: Tensor, keys: Tensor, weights: Tensor, positions: Tensor, topk: int) -> Tensor:
        pages = Pages(positions, PAGE, counts=counts)
        storage = ops.index_keys.allocate(pages.pages, PAGE // M, q.shape[-1], q.device)
        for tensor in storage.tensors():  # pages that nobody owns hold what is worst
            tensor.view(torch.uint8).fill_(0x7F)
        for b, position in enumerate(positions.tolist()):
            count = (position + 1) // M
            at = torch.arange(count, dtype=torch.int32, device=q.device)
            row = torch.full_like(at, b)
            ops.index_keys.store(storage, keys[b, :count].float(), row, at, M, pages.batch)
        made: Tensor = ops.index_select(q, weights, storage, m=M, topk=topk, batch=pages.batch)
        return made

    return run


def selecting_mixed(ops: Ops) -> Op:
    """The same for a batch of decode tokens and prefill chunks: `positions` are the last ones."""

    def run(counts: tuple[int, ...], **given: Any) -> Tensor:
        made: Tensor = selecting(ops, counts)(**given)
        return made

    return run


def token_by_token(op: Op) -> Op:
    """A function of sequences with one token each, on a mixed batch: keys repeated for each."""

    def run(counts: tuple[int, ...], positions: Tensor, keys: Tensor, **given: Any) -> Tensor:
        rows = sequences_of(counts).to(keys.device)
        made: Tensor = op(keys=keys[rows], positions=positions_of(positions, counts), **given)
        return made

    return run


def mixed(generator: torch.Generator, positions: list[int], **shape: Any) -> dict[str, Any]:
    """Arguments of one call on a batch of MIXED, whose sequences end at these positions."""
    tokens = positions_of(torch.tensor(positions), MIXED).tolist()
    given = sequences(generator, tokens, **shape)
    first = [sum(MIXED[:b]) for b in range(len(MIXED))]  # rows of a sequence's first token
    held = {"keys": given["keys"][first], "positions": torch.tensor(positions)}
    return {**given, **held, "counts": MIXED}


def true_scores(q: Tensor, keys: Tensor, weights: Tensor, **_: object) -> Tensor:
    """[B, E] of each query with its own sequence's keys."""
    rows = [index_scores(q[b : b + 1], keys[b], weights[b : b + 1]) for b in range(len(q))]
    return torch.cat(rows)


def visible(positions: Tensor, **_: object) -> Tensor:
    """Entries that each query sees."""
    return (positions + 1) // M


def visible_mixed(positions: Tensor, counts: tuple[int, ...], **_: object) -> Tensor:
    """The same of each token of a mixed batch."""
    return visible(positions_of(positions, counts))


def true_selection(
    q: Tensor, keys: Tensor, weights: Tensor, positions: Tensor, topk: int
) -> Tensor:
    """The reference, sequence by sequence."""
    scores = true_scores(q, keys, weights)
    return select(scores, visible(positions), topk)


def by_length(
    made: Tensor, scores: Tensor, seen: Tensor, needles: Tensor
) -> list[SelectionComparison]:
    """Hold each row's selection against the best one by itself: rows stand for lengths."""
    rows = range(len(made))
    return [
        compare_selection(
            made[b : b + 1],
            scores[b : b + 1],
            visible=seen[b : b + 1],
            needles=needles[b : b + 1],
        )
        for b in rows
    ]


def sequences(
    generator: torch.Generator, positions: list[int], *, heads: int, dim: int, topk: int
) -> dict[str, Any]:
    """Arguments of one call."""
    entries = max(1, (max(positions) + 1) // M)
    return {
        "q": torch.randn(len(positions), heads, dim, generator=generator),
        "keys": torch.randn(len(positions), entries, dim, generator=generator),
        "weights": torch.randn(len(positions), heads, generator=generator) * (heads * dim) ** -0.5,
        "positions": torch.tensor(positions),
        "topk": topk,
    }


def with_key_of(arguments: Mapping[str, Any], value: float) -> dict[str, Any]:
    """The same with one channel of the eighth entry of each sequence at this value."""
    keys = arguments["keys"].clone()
    keys[:, 7, keys.shape[-1] // 2] = value
    return {**arguments, "keys": keys}


def plant(arguments: dict[str, Any], generator: torch.Generator) -> Tensor:
    """Turn one entry of each sequence into its needle; returns their indices int64 [B]."""
    q, keys, weights = (arguments[name] for name in ("q", "keys", "weights"))
    positions = arguments["positions"]
    if not all(isinstance(x, Tensor) for x in (q, keys, weights, positions)):
        raise TypeError("arguments: not those of `sequences`")
    needles = []
    for b, position in enumerate(positions.tolist()):
        count = (position + 1) // M
        at = int(torch.randint(count, (1,), generator=generator))
        direction = (weights[b].clamp(min=0)[:, None] * q[b]).sum(0)
        keys[b, at] = direction / direction.norm() * keys.shape[-1] ** 0.5 * 2
        needles.append(at)
    return torch.tensor(needles)
