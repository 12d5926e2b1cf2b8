"""Teacher-forced exact match: an answer counts when each of its tokens is the likeliest."""

import torch
from torch import Tensor

from engine.nano.evalsets import Item
from engine.nano.mixture import PAD_ID
from engine.nano.mode import Mode
from engine.nano.twin import Twin

_BATCH_TOKENS = {"cuda": 131_072, "cpu": 4096}


def _padded(tokens: int) -> int:
    """Few distinct lengths, each a multiple of the window and the rates."""
    step = 64 if tokens <= 512 else 512
    return -(-tokens // step) * step


@torch.no_grad()
def exact(twin: Twin, items: list[Item], mode: Mode) -> list[bool]:
    """For each item whether the whole answer comes out; equals greedy decoding, token by token."""
    device = twin.weights.device
    order = sorted(range(len(items)), key=lambda n: len(items[n].ids))
    results = [False] * len(items)
    at = 0
    while at < len(order):
        end = _batch_end(items, order, at, _BATCH_TOKENS[device.type])
        chosen = [items[n] for n in order[at:end]]
        for n, right in zip(order[at:end], _exact_batch(twin, chosen, mode), strict=True):
            results[n] = right
        at = end
    return results


def _batch_end(items: list[Item], order: list[int], at: int, room: int) -> int:
    end = at + 1
    while end < len(order):
        if _padded(len(items[order[end]].ids)) * (end + 1 - at) > room:
            break
        end += 1
    return end


def stack(items: list[Item], device: torch.device) -> Tensor:
    """Ids of items, padded at the right to one length."""
    length = _padded(max(len(item.ids) for item in items))
    ids = torch.full((len(items), length), PAD_ID, dtype=torch.long)
    for row, item in enumerate(items):
        ids[row, : len(item.ids)] = torch.tensor(item.ids)
    return ids.to(device)


def _exact_batch(twin: Twin, items: list[Item], mode: Mode) -> list[bool]:
    ids = stack(items, twin.weights.device)
    rows = [row for row, item in enumerate(items) for _ in range(item.start, item.end)]
    columns = [column for item in items for column in range(item.start, item.end)]
    row, column = torch.tensor(rows, device=ids.device), torch.tensor(columns, device=ids.device)
    hidden, _ = twin.hidden(ids, mode)
    right = twin.logits(hidden[row, column - 1]).argmax(-1) == ids[row, column]
    wrong = set(row[~right].tolist())
    return [n not in wrong for n in range(len(items))]


@torch.no_grad()
def log_shares(twin: Twin, ids: Tensor, mode: Mode) -> Tensor:
    """Log-probabilities [B, T, V] of the next token, fp32."""
    hidden, _ = twin.hidden(ids, mode)
    return twin.logits(hidden).float().log_softmax(-1)
