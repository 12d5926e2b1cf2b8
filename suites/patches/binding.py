"""The ops of a patch, bound as the engine binds them."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fidelity.tensors import Op
from kernels import Ops, Settings, bind
from suites.patches.examination import Examination

SETTINGS = Settings(
    index_topk=32, index_head_dim=64, head_dim=128, rope_dim=32, implementation="torch"
)


def bound(
    examination: Examination,
    value: str = "on",
    settings: Settings = SETTINGS,
    beside: tuple[str, ...] = (),
) -> Ops:
    """Ops with this patch on, at this value, beside other patches if need be."""
    patches = (f"{examination.name}={value}", *beside)
    return _bind(patches, str(examination.device), settings)


def bound_without(
    examination: Examination, settings: Settings = SETTINGS, beside: tuple[str, ...] = ()
) -> Ops:
    """Ops with this patch off."""
    return _bind(beside, str(examination.device), settings)


@lru_cache
def _bind(patches: tuple[str, ...], device: str, settings: Settings) -> Ops:
    return bind(patches, device=device, dtype=torch.float32, settings=settings)


def on_cpu(examination: Examination, op: Op) -> Op:
    """The op for the reference model: tensors on the CPU, integers in int64."""
    device = examination.device

    def there(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(device, torch.int32 if value.dtype is torch.int64 else value.dtype)

    def back(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return tuple(back(part) for part in value)
        value = value.cpu()
        return value.long() if value.dtype is torch.int32 else value

    return lambda *args, **kwargs: back(
        op(*map(there, args), **{name: there(value) for name, value in kwargs.items()})
    )
