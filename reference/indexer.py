"""Lightning indexer: which compressed entries a token reads in a CSA layer.

Total order: score descending, then lowest entry index; NaN ranks below every number. ReLU makes
many scores exactly 0, so without a total order the choice would depend on the row's length.
"""

import torch
from torch import Tensor

from reference.arguments import check_shape, refuse, wide

ROWS_AT_ONCE = 64  # queries; a score of each head and entry is held for them


def index_scores(q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """score[t, w] = sum over heads h of weights[t, h] * relu(q[t, h] . keys[w]).

    Args:
        q: [T, Ni, Di], rotated.
        keys: [E, Di], entries 0 .. E - 1 of this sequence, as the format keeps them.
        weights: [T, Ni], signed, with Di^-0.5 * Ni^-0.5 already in them.

    Returns: [T, E], of all entries, visible or not.
    """
    tokens, heads, dim = q.shape
    check_shape("keys", keys, -1, dim)
    check_shape("weights", weights, tokens, heads)
    q = wide(q)
    keys, weights = keys.to(q.dtype), weights.to(q.dtype)
    scores = q.new_empty(tokens, keys.shape[0])
    for first in range(0, tokens, ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        per_head = torch.relu(q[part] @ keys.T)
        scores[part] = (weights[part][:, :, None] * per_head).sum(1)
    return scores


def visible_entries(positions: Tensor, m: int) -> Tensor:
    """How many entries a query sees: the window that ends at its own token is one of them."""
    return (positions + 1) // m


def select(scores: Tensor, visible: Tensor, topk: int) -> Tensor:
    """The best `topk` of the visible entries.

    Args:
        scores: [T, E].
        visible: int [T]: entries 0 .. visible - 1 count; at most E.
        topk: columns of the result, >= 1.

    Returns: int64 [T, topk], ascending, -1 where fewer are visible.
    Raises: ValueError: topk < 1, or an entry visible that has no score.
    """
    tokens, entries = scores.shape
    check_shape("visible", visible, tokens)
    if topk < 1:
        refuse("topk", topk, "at least 1 entry")
    if tokens and int(visible.max()) > entries:
        refuse("visible", f"{int(visible.max())} entries", f"at most the {entries} scored")
    chosen = torch.full((tokens, topk), -1, dtype=torch.int64, device=scores.device)
    for t in range(tokens):
        row = scores[t, : int(visible[t])].nan_to_num(nan=-torch.inf, posinf=torch.inf)
        best = row.sort(descending=True, stable=True).indices[:topk].sort().values
        chosen[t, : best.numel()] = best
    return chosen


def is_tied(scores: Tensor, visible: Tensor, topk: int) -> Tensor:
    """Rows whose last selected score equals the best one left out: another order may differ.

    Returns: bool [T].
    """
    tied = torch.zeros(scores.shape[0], dtype=torch.bool, device=scores.device)
    for t in range(scores.shape[0]):
        row = scores[t, : int(visible[t])].sort(descending=True).values
        tied[t] = row.numel() > topk and bool(row[topk - 1] == row[topk])
    return tied
