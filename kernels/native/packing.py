"""Weights in the layout that the C products read, packed once a tensor."""

import ctypes
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.checks import refuse

MOST_WEIGHTS = 4096  # a step that used more would pack them again at each call


class Kept(NamedTuple):
    """A packed weight, and what it was made of."""

    version: int
    shape: torch.Size
    address: int
    weight: Tensor
    packed: Tensor


class PackedWeights:
    """Keeps the packed form of each weight while the weight has not changed in place.

    The weight is held too, so that its memory cannot come to mean another one. A change in place
    shows in the tensor's version; inference tensors have none, so they must not be changed.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._kept: OrderedDict[object, Kept] = OrderedDict()

    def matrices(self, name: str, w: Tensor, count: int = 1) -> int:
        """Address of `w` [count * n, k] (or [count, n, k]) as `count` packed matrices."""
        return self._get((w.data_ptr(), count), name, w, lambda: self._pack(w, count))

    def int32(self, name: str, table: Tensor) -> int:
        """Address of `table` as contiguous int32."""
        return self._get((table.data_ptr(), 0), name, table, lambda: table.int().contiguous())

    def _get(self, key: object, name: str, w: Tensor, make: Callable[[], Tensor]) -> int:
        found = self._kept.get(key)
        version = -1 if w.is_inference() else w._version  # noqa: SLF001 - torch's change counter
        if found is None or found.version != version or found.shape != w.shape:
            if not w.is_cpu:
                refuse(name, w.device, "a weight on the CPU")
            made = make()
            found = self._kept[key] = Kept(version, w.shape, made.data_ptr(), w, made)
            if len(self._kept) > MOST_WEIGHTS:
                self._kept.popitem(last=False)
        return found.address

    def _pack(self, w: Tensor, count: int) -> Tensor:
        if w.dtype is not torch.float32:
            refuse("weight", w.dtype, torch.float32)
        k = w.shape[-1]
        w = w.reshape(count, -1, k).contiguous()
        n = w.shape[1]
        packed = torch.empty((count, self._library.k_packed_size(n, k)), dtype=torch.float32)
        for i in range(count):
            self._library.k_pack(w[i].data_ptr(), n, k, k, packed[i].data_ptr())
        return packed
