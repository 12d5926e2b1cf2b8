"""Manifold-constrained hyper-connections: n residual streams around each sublayer.

A site's parameters `fn`, `base`, `scale` hold three parts in this order: pre (n), post (n), and
comb (n * n, row-major). Row j, column k of comb is how much of stream j enters stream k.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from reference.arguments import check_shape, refuse, wide
from reference.rmsnorm import rms_norm


class Collapsed(NamedTuple):
    """Of `mhc_pre`: the sublayer's input y [T, H], post [T, n], comb [T, n, n]."""

    y: Tensor
    post: Tensor
    comb: Tensor


def mhc_mix(streams: Tensor, fn: Tensor, rms_eps: float) -> Tensor:
    """Unweighted RMS norm over all n * H channels of a token, times fn^T; [T, rows of fn]."""
    x = wide(streams).flatten(1)
    check_shape("fn", fn, -1, x.shape[1])
    return rms_norm(x, None, rms_eps) @ fn.to(x.dtype).T


def mhc_pre(
    streams: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    *,
    rms_eps: float,
    hc_eps: float,
    iters: int,
) -> Collapsed:
    """Collapse the streams, and say how the sublayer's output is spread again.

    Args:
        streams: [T, n, H].
        fn: [(2 + n) * n, n * H].
        base: [(2 + n) * n].
        scale: [3]: of pre, post, comb.
        rms_eps: of the RMS norm alone.
        hc_eps: added to pre, to comb, and to every divisor of Sinkhorn.
        iters: Sinkhorn iterations, >= 1; the first is softmax over rows, then columns.

    Raises: ValueError: a shape that does not fit, or iters < 1.
    """
    tokens, n, _ = streams.shape
    check_shape("fn", fn, (2 + n) * n, streams.shape[1] * streams.shape[2])
    check_shape("base", base, (2 + n) * n)
    check_shape("scale", scale, 3)
    mix = mhc_mix(streams, fn, rms_eps)
    base, scale = base.to(mix.dtype), scale.to(mix.dtype)
    pre = torch.sigmoid(mix[:, :n] * scale[0] + base[:n]) + hc_eps
    post = 2 * torch.sigmoid(mix[:, n : 2 * n] * scale[1] + base[n : 2 * n])
    comb = mix[:, 2 * n :] * scale[2] + base[2 * n :]
    comb = sinkhorn(comb.reshape(tokens, n, n), hc_eps=hc_eps, iters=iters)
    return Collapsed((pre[:, :, None] * wide(streams)).sum(1), post, comb)


def sinkhorn(logits: Tensor, *, hc_eps: float, iters: int) -> Tensor:
    """Softmax over rows + eps, columns, then (iters - 1) times rows, columns; [T, n, n]."""
    if iters < 1:
        refuse("iters", iters, "at least 1")
    comb = torch.softmax(logits, dim=2) + hc_eps
    comb = comb / (comb.sum(1, keepdim=True) + hc_eps)
    for _ in range(iters - 1):
        comb = comb / (comb.sum(2, keepdim=True) + hc_eps)
        comb = comb / (comb.sum(1, keepdim=True) + hc_eps)
    return comb


def mhc_post(f: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """X'[k] = post[k] * f + sum over j of comb[j, k] * X[j]; [T, n, H].

    Args:
        f: output of the sublayer [T, H].
        streams: [T, n, H], as `mhc_pre` was given.
        post: [T, n].
        comb: [T, n, n].
    """
    tokens, n, hidden = streams.shape
    check_shape("f", f, tokens, hidden)
    check_shape("post", post, tokens, n)
    check_shape("comb", comb, tokens, n, n)
    streams = wide(streams)
    mixed = torch.einsum("tjk,tjh->tkh", comb.to(streams.dtype), streams)
    return post.to(streams.dtype)[:, :, None] * f.to(streams.dtype)[:, None, :] + mixed


def mhc_head(
    streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, *, rms_eps: float, hc_eps: float
) -> Tensor:
    """Collapse after the last layer: [T, n, H] -> [T, H] by gates that are not normalised.

    Args:
        streams: [T, n, H].
        fn: [n, n * H].
        base: [n].
        scale: [1].
        rms_eps: of the RMS norm.
        hc_eps: added to the gates.
    """
    check_shape("base", base, streams.shape[1])
    check_shape("scale", scale, 1)
    check_shape("fn", fn, streams.shape[1], streams.shape[1] * streams.shape[2])
    mix = mhc_mix(streams, fn, rms_eps)
    gates = torch.sigmoid(mix * scale.to(mix.dtype) + base.to(mix.dtype)) + hc_eps
    return (gates[:, :, None] * wide(streams)).sum(1)
