"""Muon on matrices and experts, Adam on the rest; every number a device tensor.

So a captured CUDA graph can hold the step: its learning rate is read from memory at each replay.
"""

import torch
from torch import Tensor

from engine.nano.weights import Weights

_MOMENTUM = 0.95
_DECAY = 0.02
_BETA1, _BETA2, _EPS = 0.9, 0.95, 1e-10
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
# Adam's rate for some kinds of parameters, as a share of its base rate
_SHARES = {"indexer": 0.7, "_hc.": 0.5, "hc_head": 0.5}


def _uses_muon(name: str, value: Tensor) -> bool:
    by_adam = ("indexer", "embed", "lm_head", "hc", "position_bias", "gate.weight")
    return value.dim() >= 2 and not any(part in name for part in by_adam)


class Optimizer:
    """One step from the gradients in `.grad`; `factor` scales both learning rates."""

    def __init__(self, weights: Weights, *, muon_rate: float, adam_rate: float) -> None:
        named = weights.trainable()
        device = weights.device
        self.muon_rate, self.adam_rate = muon_rate, adam_rate
        self.factor = torch.ones((), device=device)
        self.count = torch.zeros((), device=device)
        self.muon = {name: p for name, p in named.items() if _uses_muon(name, p)}
        self.adam = {name: p for name, p in named.items() if name not in self.muon}
        self._momentum = {name: torch.zeros_like(p) for name, p in self.muon.items()}
        self._mean = {name: torch.zeros_like(p) for name, p in self.adam.items()}
        self._square = {name: torch.zeros_like(p) for name, p in self.adam.items()}
        self._groups = self._by_shape()

    def _by_shape(self) -> dict[tuple[int, ...], list[str]]:
        groups: dict[tuple[int, ...], list[str]] = {}
        for name, value in self.muon.items():
            groups.setdefault(tuple(value.shape), []).append(name)
        return groups

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient this time."""
        self.count += 1
        for shape, names in self._groups.items():
            self._step_muon(shape, names)
        for share in sorted({self._share(name) for name in self.adam}):
            names = [
                n for n, p in self.adam.items() if self._share(n) == share and p.grad is not None
            ]
            if names:
                self._step_adam(names, share)

    @staticmethod
    def _share(name: str) -> float:
        return next((s for part, s in _SHARES.items() if part in name), 1.0)

    def _step_muon(self, shape: tuple[int, ...], names: list[str]) -> None:
        params: list[Tensor] = [self.muon[name] for name in names]
        grads = [_gradient(p) for p in params]
        momenta = [self._momentum[name] for name in names]
        torch._foreach_lerp_(momenta, grads, 1 - _MOMENTUM)
        steps = torch.stack(torch._foreach_lerp(grads, momenta, _MOMENTUM))  # noqa: SLF001
        flat = orthogonalise(steps.reshape(-1, shape[-2], shape[-1])).reshape(len(names), *shape)
        stretch = max(1.0, shape[-2] / shape[-1]) ** 0.5
        rate = self.muon_rate * self.factor
        torch._foreach_mul_(params, 1 - rate * _DECAY)
        torch._foreach_sub_(params, list((flat * (rate * stretch)).unbind(0)))

    def _step_adam(self, names: list[str], share: float) -> None:
        params: list[Tensor] = [self.adam[name] for name in names]
        grads = [_gradient(p) for p in params]
        mean = [self._mean[name] for name in names]
        square = [self._square[name] for name in names]
        torch._foreach_lerp_(mean, grads, 1 - _BETA1)
        torch._foreach_mul_(square, _BETA2)
        torch._foreach_addcmul_(square, grads, grads, 1 - _BETA2)
        size = torch._foreach_sqrt(square)  # noqa: SLF001
        torch._foreach_mul_(size, (1 - _BETA2**self.count).rsqrt())
        torch._foreach_add_(size, _EPS)
        change = list(torch._foreach_div(mean, size))  # noqa: SLF001
        rate = self.adam_rate * share * self.factor / (1 - _BETA1**self.count)
        torch._foreach_mul_(change, rate)
        torch._foreach_sub_(params, change)

    def state(self) -> dict[str, Tensor]:
        """Tensors from which `load` continues; momenta of matrices are rounded to bf16."""
        out = {f"momentum/{n}": v.bfloat16() for n, v in self._momentum.items()}
        out |= {f"mean/{n}": v for n, v in self._mean.items()}
        out |= {f"square/{n}": v for n, v in self._square.items()}
        return out | {"count": self.count}

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.count.copy_(state["count"])
        for prefix, own in (
            ("momentum/", self._momentum),
            ("mean/", self._mean),
            ("square/", self._square),
        ):
            for name, value in own.items():
                value.copy_(state[prefix + name])


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad


def orthogonalise(matrices: Tensor) -> Tensor:
    """fp32 [N, R, C] -> nearly the closest orthogonal matrices, by five bf16 iterations."""
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.transpose(1, 2) if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _NEWTON_SCHULZ
    for _ in range(5):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    out: Tensor = (x.transpose(1, 2) if tall else x).float()
    return out
