"""Holds the fused kernels against their torch definitions here, before a run uses them."""
# mypy: disable-error-code="no-untyped-call"
# torch leaves Function.apply, unflatten, backward and Stream without types

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.nano.gating import Gated, gated_torch
from engine.nano.norm_rotate import NormRotate, Shape, norm_rotate_torch
from engine.nano.projection import Project, project_torch
from engine.nano.sinkhorn import Sinkhorn, has_triton, sinkhorn_torch
from engine.nano.streams import Collapse, Expand, collapse_torch, expand_torch

_ROWS = 1003  # no multiple of any block
_TOKENS = 67
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
    if device.type != "cuda" or not has_triton:
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
    x = torch.randn(_ROWS, 4, hidden, device=device).bfloat16().requires_grad_()
    f = torch.randn(_ROWS, hidden, device=device).bfloat16().requires_grad_()
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
    others |= _check_rows(device, hidden)
    ok = ok and max(others.values()) < _BF16_BOUND
    return FusedCheck(errors | others, ok)


def _check_rows(device: torch.device, hidden: int) -> dict[str, float]:
    """Norms with rotation, the experts' activation, the mixing projection."""

    def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(*shape, device=device, dtype=dtype, requires_grad=True)

    full = torch.float32
    errors: dict[str, float] = {}
    angle = torch.rand(_TOKENS, 16, device=device) * 6
    cos, sin = angle.cos(), angle.sin()
    q, out = drawn(3, _TOKENS, 4, 128), torch.randn(3, _TOKENS, 4, 128, device=device)
    for name, shape in (
        ("q", Shape(eps=1e-6, scale=0.1, heads=4)),
        ("back", Shape(heads=4, inverse=True)),
    ):
        wanted = norm_rotate_torch(q.float(), None, cos, sin, shape)
        found = NormRotate.apply(q, None, cos, sin, shape)
        errors |= _compare(name, [wanted], [found], [out], [q])
    kv, weight = drawn(3, _TOKENS, 128), drawn(128, dtype=full)
    for name, turn in (("kv", True), ("norm", False)):
        angles = (cos, sin) if turn else (None, None)
        wanted = norm_rotate_torch(kv.float(), weight, angles[0], angles[1], Shape(eps=1e-6))
        found = NormRotate.apply(kv, weight, *angles, Shape(eps=1e-6))
        errors |= _compare(name, [wanted], [found], [out[:, :, 0]], [kv, weight])
    inner, share = drawn(_ROWS, 8, 192), drawn(_ROWS, 8, dtype=full)
    wanted, found = gated_torch(inner.float(), share, 1.0), Gated.apply(inner, share, 1.0)
    cotangent = torch.randn_like(wanted)
    errors |= _compare("gated", [wanted], [found], [cotangent], [inner, share])
    flat, fn = drawn(_ROWS, 4 * hidden), drawn(24, 4 * hidden, dtype=full)
    wanted, found = project_torch(flat, fn, 1e-6), Project.apply(flat, fn, 1e-6)
    cotangent = torch.randn_like(wanted)
    return errors | _compare("project", [wanted], [found], [cotangent], [flat, fn])


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
