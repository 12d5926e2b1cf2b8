"""What a candidate makes of a weight once: rounded, quantised, packed."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

MOST_WEIGHTS = 4096  # a step that used more would prepare them again at each call

P = TypeVar("P")


class _Kept(NamedTuple):
    version: int
    weight: Tensor
    made: object


class Prepared(Generic[P]):
    """Keeps `make(weight)` while the weight has not changed in place.

    The weight is held too, so that its memory cannot come to mean another one. Inference tensors
    have no version, so they must not be changed. One thread calls at a time.
    """

    def __init__(self, make: Callable[[Tensor], P]) -> None:
        self._make = make
        self._kept: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()

    def __call__(self, weight: Tensor) -> P:
        """The prepared form of this weight."""
        key = (weight.data_ptr(), tuple(weight.shape), weight.dtype, weight.device)
        version = -1 if weight.is_inference() else weight._version  # noqa: SLF001 - change counter
        found = self._kept.get(key)
        if found is None or found.version != version:
            found = self._kept[key] = _Kept(version, weight, self._make(weight))
            if len(self._kept) > MOST_WEIGHTS:
                self._kept.popitem(last=False)
        return found.made  # type: ignore[return-value]
