"""The ops of a patch, bound as the engine binds them."""

from functools import lru_cache

import torch

from kernels import Ops, Settings, bind
from suites.patches.examination import Examination

SETTINGS = Settings(
    index_topk=32, index_head_dim=64, head_dim=128, rope_dim=32, implementation="torch"
)


def bound(examination: Examination, value: str = "on", settings: Settings = SETTINGS) -> Ops:
    """Ops with this patch on, at this value."""
    return _bind(f"{examination.name}={value}", str(examination.device), settings)


def bound_without(examination: Examination, settings: Settings = SETTINGS) -> Ops:
    """Ops with every patch off."""
    return _bind("", str(examination.device), settings)


@lru_cache
def _bind(patch: str, device: str, settings: Settings) -> Ops:
    patches = [patch] if patch else []
    return bind(patches, device=device, dtype=torch.float32, settings=settings)
