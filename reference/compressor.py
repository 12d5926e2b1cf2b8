"""Compressors: m tokens become one entry, by a softmax per channel over the window's slots.

Only whole windows make entries. Entry w is rotated at position w * m, its first token.
"""

import torch
from torch import Tensor

from reference.arguments import check_shape, refuse, wide
from reference.rmsnorm import rms_norm
from reference.rope import rotate


def hca_entries(
    kv: Tensor, gate: Tensor, ape: Tensor, norm_weight: Tensor, *, eps: float, freqs: Tensor
) -> Tensor:
    """Entries of windows that stand side by side (HCA).

    Args:
        kv: [T, D] of positions 0 .. T - 1.
        gate: [T, D], logits.
        ape: [m, D], added to the gate by place in the window.
        norm_weight: [D].
        eps: of the RMS norm.
        freqs: of the layer's rotary embedding.

    Returns: [T // m, D].
    """
    m, dim = ape.shape
    kv, logits = _windows(kv, gate, ape)
    mixed = (torch.softmax(logits, dim=1) * kv).sum(1)
    check_shape("norm_weight", norm_weight, dim)
    return _norm_and_rotate(mixed, norm_weight, m, eps=eps, freqs=freqs)


def csa_entries(
    kv: Tensor, gate: Tensor, ape: Tensor, norm_weight: Tensor, *, eps: float, freqs: Tensor
) -> Tensor:
    """Entries of windows that overlap (CSA; the indexer's keys too).

    Of each token's 2D channels the first half feeds the next window, the second half its own: the
    softmax of window w runs over the first halves of window w - 1 and the second halves of w. The
    first window has no previous one.

    Args:
        kv: [T, 2D] of positions 0 .. T - 1.
        gate: [T, 2D], logits.
        ape: [m, 2D], added to the gate by place in the window.
        norm_weight: [D].
        eps: of the RMS norm.
        freqs: of the layer's rotary embedding.

    Returns: [T // m, D].
    """
    m, double = ape.shape
    dim = double // 2
    check_shape("norm_weight", norm_weight, dim)
    kv, logits = _windows(kv, gate, ape)
    mixed = kv.new_empty(kv.shape[0], dim)
    for w in range(kv.shape[0]):
        values, weights = kv[w, :, dim:], logits[w, :, dim:]
        if w > 0:
            values = torch.cat((kv[w - 1, :, :dim], values))
            weights = torch.cat((logits[w - 1, :, :dim], weights))
        mixed[w] = (torch.softmax(weights, dim=0) * values).sum(0)
    return _norm_and_rotate(mixed, norm_weight, m, eps=eps, freqs=freqs)


def _windows(kv: Tensor, gate: Tensor, ape: Tensor) -> tuple[Tensor, Tensor]:
    """Return kv and gate + ape of the whole windows, [T // m, m, channels] each."""
    tokens, channels = kv.shape
    m = ape.shape[0]
    if m < 1:
        refuse("ape", "no rows", "one for each token of a window")
    check_shape("gate", gate, tokens, channels)
    check_shape("ape", ape, m, channels)
    kv, gate = wide(kv), wide(gate)
    whole = tokens // m
    kv = kv[: whole * m].view(whole, m, channels)
    return kv, gate[: whole * m].view(whole, m, channels) + ape.to(gate.dtype)


def _norm_and_rotate(
    mixed: Tensor, norm_weight: Tensor, m: int, *, eps: float, freqs: Tensor
) -> Tensor:
    first_token = torch.arange(mixed.shape[0], device=mixed.device) * m
    return rotate(rms_norm(mixed, norm_weight, eps), first_token, freqs)
