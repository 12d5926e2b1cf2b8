"""Patch `mhc_bf16`: the product that mixes the residual streams, in bf16 instead of fp32.

One pass over the streams computes the product and the sum of squares that its RMS norm needs, in
blocks of 128 channels, from streams and `fn` rounded to bf16, summed in fp32, the blocks with
compensation (Kahan); then the gates and Sinkhorn, in fp32; then the collapse. The streams that are
collapsed stay as they are.

On CUDA this is one Triton kernel (kernels/gpu/mhc_bf16.py); on the CPU its arithmetic in torch.
"""

import torch
from torch import Tensor

from kernels.baseline.mhc import sinkhorn
from kernels.checks import check_finite_eps, check_float, check_shape, refuse
from kernels.patch import Installation, kernel_patch
from kernels.prepared import Prepared

BLOCK_K = 128
MOST_STREAMS = 8

rounded_fn = Prepared(lambda fn: fn.bfloat16().float())


def check_mhc(
    streams: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    *,
    eps: tuple[float, float],
    iters: int,
) -> None:
    """Refuse what the kernel cannot do; shared by both forms of it."""
    check_shape("streams", streams, -1, -1, -1)
    check_float("streams", streams)
    _, n, hidden = streams.shape
    if not 1 <= n <= MOST_STREAMS:
        refuse("streams", f"{n} streams", f"1..{MOST_STREAMS}")
    for name, tensor, shape in (
        ("fn", fn, ((2 + n) * n, n * hidden)),
        ("base", base, ((2 + n) * n,)),
        ("scale", scale, (3,)),
    ):
        check_float(name, tensor, like=streams)
        check_shape(name, tensor, *shape)
    check_finite_eps("rms_eps", eps[0])
    check_finite_eps("hc_eps", eps[1])
    if iters < 1:
        refuse("iters", iters, "at least 1")


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
    """The kernel's arithmetic on the CPU; arguments and results as `kernels.baseline.mhc`."""
    check_mhc(streams, fn, base, scale, eps=(rms_eps, hc_eps), iters=iters)
    tokens, n, hidden = streams.shape
    flat, weight = streams.flatten(1).bfloat16().float(), rounded_fn(fn)
    mix = flat.new_zeros(tokens, fn.shape[0])
    squares = flat.new_zeros(tokens)
    lost_mix, lost_squares = mix, squares
    for first in range(0, n * hidden, BLOCK_K):
        block = flat[:, first : first + BLOCK_K]
        mix, lost_mix = _add(mix, lost_mix, block @ weight[:, first : first + BLOCK_K].T)
        squares, lost_squares = _add(squares, lost_squares, block.square().sum(1))
    mix = mix * torch.rsqrt(squares / (n * hidden) + rms_eps)[:, None]
    base, scale = base.float(), scale.float()
    pre = torch.sigmoid(mix[:, :n] * scale[0] + base[:n]) + hc_eps
    post = 2 * torch.sigmoid(mix[:, n : 2 * n] * scale[1] + base[n : 2 * n])
    comb = (mix[:, 2 * n :] * scale[2] + base[2 * n :]).view(tokens, n, n)
    comb = sinkhorn(torch.softmax(comb, dim=-1) + hc_eps, eps=hc_eps, iters=iters)
    y = (pre[..., None] * streams.float()).sum(1).to(streams.dtype)
    return y, post, comb


def _add(total: Tensor, lost: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    """Add to a sum and to what its roundings lost; a sum that is not finite loses nothing."""
    part = part - lost
    after = total + part
    return after, torch.where(after.isfinite(), (after - total) - part, 0.0)


def _install(into: Installation) -> None:
    if into.on_gpu:
        from kernels.gpu.mhc_bf16 import mhc_pre as run
    else:
        run = mhc_pre

    def counted(streams: Tensor, *args: Tensor, **options: float) -> tuple[Tensor, Tensor, Tensor]:
        into.count()
        return run(streams, *args, **options)  # type: ignore[arg-type]

    into.functions["mhc_pre"] = counted


PATCH = kernel_patch(
    "mhc_bf16",
    phase="both",
    unconditional=True,
    summary="hyper-connection mixing product in bf16 instead of fp32",
    source="public serving ports; DeepSeek-V4 declares hc_* parameters as fp32",
    install=_install,
)
