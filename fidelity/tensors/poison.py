"""Poisoned allocations: what a kernel leaves unwritten shows in its output."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_NAMES = ("empty", "empty_like", "empty_strided")


def absurd(made: Tensor) -> Tensor:
    """Fill with NaN, or with an integer that no index and no code can be."""
    if made.dtype.is_floating_point and made.element_size() > 1:
        return made.fill_(float("nan"))
    if made.dtype.is_floating_point:  # float8: 0x7f is NaN in e4m3 and in e5m2
        made.view(torch.uint8).fill_(0x7F)
        return made
    if made.dtype.is_complex or made.dtype is torch.bool:
        return made
    return made.fill_(torch.iinfo(made.dtype).max)


@contextmanager
def poisoned() -> Iterator[None]:
    """Poison what torch.empty, empty_like, empty_strided and new_empty hand out.

    Not thread-safe; put back in any case.
    """
    kept = {name: getattr(torch, name) for name in _NAMES}
    new_empty = Tensor.new_empty

    def wrap(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args, **kwargs: absurd(make(*args, **kwargs))

    for name, make in kept.items():
        setattr(torch, name, wrap(make))
    Tensor.new_empty = wrap(new_empty)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for name, make in kept.items():
            setattr(torch, name, make)
        Tensor.new_empty = new_empty  # type: ignore[method-assign]
