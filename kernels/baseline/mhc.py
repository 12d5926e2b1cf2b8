"""Manifold-constrained hyper-connections: n residual streams mixed around each sublayer.

`fn`, `base` and `scale` hold three parts: pre (n), post (n), comb (n * n, row-major (j, k)).
The first index of comb is the source stream. All arithmetic is fp32.
"""

import torch
from torch import Tensor

from kernels.checks import check_shape, refuse


def _mix(streams: Tensor, fn: Tensor, rms_eps: float) -> Tensor:
    """The RMS norm runs over all n * H channels of a token."""
    flat = streams.float().flatten(1)
    norm = torch.rsqrt(flat.square().mean(-1, keepdim=True) + rms_eps)
    return torch.nn.functional.linear(flat * norm, fn.float())


def sinkhorn(comb: Tensor, *, eps: float, iters: int) -> Tensor:
    """Alternate column and row normalisation of [T, n, n]; begins and ends on columns."""
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iters - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb


def mhc_pre(
    streams: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    *,
    rms_eps: float,
    hc_eps: float,
    iters: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Collapse the streams into a sublayer's input, and say how its output is spread again.

    Args:
        streams: [T, n, H].
        fn: fp32 [(2 + n) * n, n * H].
        base: fp32 [(2 + n) * n].
        scale: fp32 [3]: of pre, post and comb.
        rms_eps: of the RMS norm.
        hc_eps: of everything else.
        iters: Sinkhorn iterations, >= 1.


    Returns: y like streams [T, H], post fp32 [T, n], comb fp32 [T, n, n].
    """
    tokens, n, hidden = streams.shape
    check_shape("fn", fn, (2 + n) * n, n * hidden)
    check_shape("base", base, (2 + n) * n)
    check_shape("scale", scale, 3)
    if iters < 1:
        refuse("iters", iters, "at least 1")
    mix = _mix(streams, fn, rms_eps)
    pre = torch.sigmoid(mix[:, :n] * scale[0] + base[:n]) + hc_eps
    post = 2 * torch.sigmoid(mix[:, n : 2 * n] * scale[1] + base[n : 2 * n])
    comb = (mix[:, 2 * n :] * scale[2] + base[2 * n :]).view(tokens, n, n)
    comb = sinkhorn(torch.softmax(comb, dim=-1) + hc_eps, eps=hc_eps, iters=iters)
    y = (pre[..., None] * streams.float()).sum(1).to(streams.dtype)
    return y, post, comb


def mhc_post(f: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """X'[k] = post[k] * f + sum_j comb[j, k] * X[j].

    Args:
        f: sublayer output [T, H].
        streams: [T, n, H], as `mhc_pre` was given.
        post: fp32 [T, n].
        comb: fp32 [T, n, n].


    Returns: like streams.
    """
    tokens, n, hidden = streams.shape
    check_shape("f", f, tokens, hidden)
    check_shape("post", post, tokens, n)
    check_shape("comb", comb, tokens, n, n)
    mixed = torch.matmul(comb.transpose(1, 2), streams.float())
    return (post[..., None] * f.float()[:, None] + mixed).to(streams.dtype)


def mhc_head(
    streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, *, rms_eps: float, hc_eps: float
) -> Tensor:
    """Collapse the streams after the last layer; no Sinkhorn, weights not normalised.

    Args:
        streams: [T, n, H].
        fn: fp32 [n, n * H].
        base: fp32 [n].
        scale: fp32 [1].
        rms_eps: of the RMS norm.
        hc_eps: added to the gates.


    Returns: like streams [T, H].
    """
    _, n, hidden = streams.shape
    check_shape("fn", fn, n, n * hidden)
    check_shape("base", base, n)
    check_shape("scale", scale, 1)
    pre = torch.sigmoid(_mix(streams, fn, rms_eps) * scale + base) + hc_eps
    return (pre[..., None] * streams.float()).sum(1).to(streams.dtype)
