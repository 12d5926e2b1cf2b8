"""Holds the fused kernels against their torch definitions on this machine, before a run uses them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.nano import sinkhorn, streams
from engine.nano.sinkhorn import Sinkhorn, sinkhorn_torch
from engine.nano.streams import Collapse, Expand, collapse_torch, expand_torch

_ROWS = 1003  # no multiple of any block
_SINKHORN_BOUND = 2e-3  # the implicit gradient ignores hc_eps
_BF16_BOUND = 1e-2


@dataclass(frozen=True, slots=True)
class FusedCheck:
    """Relative errors by name; `ok` when all are within their bounds."""

    errors: dict[str, float]
    ok: bool

    def line(self) -> str:
        """For the log."""
        if not self.errors:
            return "fused kernels: none on this device, plain torch is used"
        shown = " ".join(f"{name} {error:.1e}" for name, error in self.errors.items())
        return f"fused kernels {'agree' if self.ok else 'DISAGREE'} with torch: {shown}"


def check_fused(device: torch.device, hidden: int, hc_eps: float) -> FusedCheck:
    """Forward and backward errors of every fused kernel, on fresh random inputs."""
    if device.type != "cuda" or streams.triton is None or sinkhorn.triton is None:
        return FusedCheck({}, ok=False)
    logits = torch.randn(_ROWS, 4, 4, device=device, requires_grad=True)
    weight = torch.randn(_ROWS, 4, 4, device=device)
    errors = _compare(
        "sinkhorn",
        [sinkhorn_torch(logits, 20, hc_eps)],
        [Sinkhorn.apply(logits, 20, hc_eps, True)],
        [weight],
        [logits],
    )
    ok = max(errors.values()) < _SINKHORN_BOUND
    half = {"device": device, "dtype": torch.bfloat16}
    x = torch.randn(_ROWS, 4, hidden, **half, requires_grad=True)
    f = torch.randn(_ROWS, hidden, **half, requires_grad=True)
    post = torch.rand(_ROWS, 4, device=device, requires_grad=True)
    mix = torch.rand(_ROWS, 4, 4, device=device, requires_grad=True)
    wide, narrow = torch.randn_like(x), torch.randn_like(f)
    others = _compare(
        "streams",
        [expand_torch(f.float(), x.float(), post, mix), collapse_torch(x.float(), post)],
        [Expand.apply(f, x, post, mix), Collapse.apply(x, post)],
        [wide, narrow],
        [f, x, post, mix],
    )
    ok = ok and max(others.values()) < _BF16_BOUND
    return FusedCheck(errors | others, ok)


def _compare(
    name: str,
    expected: list[Tensor],
    found: list[Tensor],
    cotangents: list[Tensor],
    inputs: list[Tensor],
) -> dict[str, float]:
    wanted = [*expected, *_gradients(expected, cotangents, inputs)]
    got = [*found, *_gradients(found, cotangents, inputs)]
    return {
        f"{name}[{n}]": ((g.float() - w.float()).norm() / w.float().norm()).item()
        for n, (w, g) in enumerate(zip(wanted, got, strict=True))
    }


def _gradients(
    outputs: list[Tensor], cotangents: list[Tensor], inputs: list[Tensor]
) -> list[Tensor]:
    total = sum(
        ((o.float() * c.float()).sum() for o, c in zip(outputs, cotangents, strict=True)),
        start=torch.zeros((), device=outputs[0].device),
    )
    return list(torch.autograd.grad(total, inputs))
