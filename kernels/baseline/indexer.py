"""The indexer: score every visible entry, keep the best `topk`.

Total order: score descending, then lowest entry index; a NaN score ranks below every number.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.batch import PagedBatch
from kernels.checks import check_rate, check_real, check_shape, check_whole, refuse, sizes
from kernels.index_keys import IndexKeys, KeyStorage

CHUNK_ELEMENTS = 1 << 25  # per-head scores held at once: 128 MiB of fp32


def check_index_select(
    q: Tensor, weights: Tensor, storage: KeyStorage, *, m: int, topk: int, batch: PagedBatch
) -> None:
    """Refuse what would be read out of bounds; shared by all implementations."""
    tokens, heads, _ = sizes("q", q, 3)
    check_shape("q", q, batch.positions.numel(), heads, storage.dim)
    check_shape("weights", weights, tokens, heads)
    check_rate(m, batch.page_size)
    if storage.slots != batch.page_size // m:
        refuse("storage", f"{storage.slots} slots a page", f"{batch.page_size // m}")
    check_whole("topk", topk, "at least 1 entry")


def select_top(scores: Tensor, visible: Tensor, topk: int) -> Tensor:
    """int32 [T, topk]: indices of the best visible scores, ascending, -1 padded.

    Args:
        scores: fp32 [T, S]; where not visible they may hold anything.
        visible: int64 [T], entries 0 .. visible - 1 count.
        topk: columns of the result.
    """
    entries = scores.shape[1]
    hidden = torch.arange(entries, device=scores.device) >= visible[:, None]
    ranked = scores.nan_to_num(nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
    ranked = ranked.masked_fill(hidden, float("-inf"))
    best = ranked.sort(dim=-1, descending=True, stable=True).indices[:, :topk]
    best = torch.where(best < visible[:, None], best, entries).sort(dim=-1).values
    best = torch.where(best < entries, best, -1).int()
    return torch.nn.functional.pad(best, (0, topk - best.shape[1]), value=-1)


def bind_index_select(keys: IndexKeys) -> Callable[..., Tensor]:
    """`index_select` over keys of this format."""

    def index_select(
        q: Tensor,
        weights: Tensor,
        storage: KeyStorage,
        *,
        m: int,
        topk: int,
        batch: PagedBatch,
    ) -> Tensor:
        """The compressed entries that each token reads.

        score[t, w] = sum_h weights[t, h] * relu(q[t, h] . key[w]) over w < (pos + 1) // m.

        Args:
            q: [T, Ni, Di].
            weights: [T, Ni], signed.
            storage: what `index_keys` has written.
            m: tokens of an entry.
            topk: entries a token may read; with no more visible than that, all are returned.
            batch: positions and pages.


        Returns: int32 [T, topk], ascending, -1 padded.
        """
        check_index_select(q, weights, storage, m=m, topk=topk, batch=batch)
        check_real("q", q)
        check_real("weights", weights)
        batch.check_pool("storage", storage.codes.shape[0])
        if storage.format != keys.format:
            refuse("storage", f"keys as {storage.format.text()}", keys.format.text())
        q = keys.rotate_query(q.float())
        out = torch.full((q.shape[0], topk), -1, dtype=torch.int32, device=q.device)
        for seqs, tokens in _rectangles(batch):
            visible = (batch.positions[tokens].long() + 1) // m
            entries = int(visible.max())
            if entries:
                rows = _key_rows(keys, storage, seqs, entries, m, batch)
                scores = _scores(q[tokens], weights[tokens].float(), rows)
                flat = select_top(scores.flatten(0, 1), visible.flatten(), topk)
                out[tokens.flatten()] = flat
        return out

    return index_select


def _rectangles(batch: PagedBatch) -> list[tuple[Tensor, Tensor]]:
    """(sequences [G], tokens [G, Tq]): all decode tokens together, each prefill by itself."""

    def make() -> list[tuple[Tensor, Tensor]]:
        start = batch.query_start.tolist()
        spans = [(seq, start[seq], start[seq + 1]) for seq in range(len(start) - 1)]
        groups = [([seq], [list(range(a, b))]) for seq, a, b in spans if b - a > 1]
        single = [(seq, [a]) for seq, a, b in spans if b - a == 1]
        if single:
            groups.append(([seq for seq, _ in single], [tokens for _, tokens in single]))
        device = batch.positions.device
        return [(torch.tensor(s, device=device), torch.tensor(t, device=device)) for s, t in groups]

    return batch.derive("rectangles", make)


def _key_rows(
    keys: IndexKeys, storage: KeyStorage, seqs: Tensor, entries: int, m: int, batch: PagedBatch
) -> Tensor:
    """fp32 [G, entries, Di]; rows past a sequence's own entries hold anything."""
    index = torch.arange(entries, device=seqs.device).expand(seqs.numel(), -1)
    slots = batch.entry_slots(seqs[:, None].expand_as(index), index, m).clamp(min=0)
    return keys.read(storage, slots)


def _scores(q: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    """fp32 [G, Tq, entries]."""
    group, _, heads, _ = q.shape
    step = max(1, CHUNK_ELEMENTS // (group * heads * rows.shape[1]))
    parts = []
    for first in range(0, q.shape[1], step):
        dots = torch.einsum("gthd,gsd->gths", q[:, first : first + step], rows).relu_()
        parts.append(torch.einsum("gths,gth->gts", dots, weights[:, first : first + step]))
    return torch.cat(parts, dim=1)
