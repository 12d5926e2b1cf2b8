"""How index keys look after they were stored in few bits: for training noise and evaluation."""

from collections.abc import Callable

import torch
from torch import Tensor


def round_keys(keys: Tensor, form: str) -> Tensor:
    """Keys [..., D] rounded as a narrow store would, in their own dtype.

    `form` is "bf16", "fp8", "fp4", "int4", "zero", or "outlierG:FORM": channel 0 is G times larger
    while the row is rounded, as it is in a checkpoint with an outlier channel.
    """
    if form.startswith("outlier"):
        factor, _, inner = form.removeprefix("outlier").partition(":")
        scaled = keys.float().clone()
        scaled[..., 0] *= float(factor)
        scaled = round_keys(scaled, inner)
        scaled[..., 0] /= float(factor)
        return scaled.to(keys.dtype)
    return _FORMS[form](keys.float()).to(keys.dtype)


def _bf16(keys: Tensor) -> Tensor:
    return keys.bfloat16().float()


def _fp8(keys: Tensor) -> Tensor:
    scale = keys.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 448
    codes: Tensor = (keys / scale).to(torch.float8_e4m3fn).float()
    return codes * scale


def _int4(keys: Tensor) -> Tensor:
    scale = keys.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 7
    return (keys / scale).round().clamp(-7, 7) * scale


def _fp4(keys: Tensor) -> Tensor:
    """e2m1 in blocks of 32."""
    blocks = keys.view(*keys.shape[:-1], -1, 32)
    scale = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 6
    size = (blocks / scale).abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    rounded = ((size / step).round() * step).clamp(max=6)
    out: Tensor = (rounded * blocks.sign() * scale).flatten(-2)
    return out


_FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "bf16": _bf16,
    "fp8": _fp8,
    "fp4": _fp4,
    "int4": _int4,
    "zero": torch.zeros_like,
}
