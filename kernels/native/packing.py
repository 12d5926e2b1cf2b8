"""Weights in the layout that the C products read, packed once a tensor."""

import ctypes
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor

from kernels.checks import refuse

MOST_WEIGHTS = 4096  # a step that used more would pack them again at each call


class PackedWeights:
    """Keeps the packed form of each weight while the weight has not changed in place.

    The weight is held too, so that its memory cannot come to mean another one. A change in place
    shows in the tensor's version; inference tensors have none, so they must not be changed.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._kept: OrderedDict[object, tuple[int, Tensor, Tensor]] = OrderedDict()

    def matrices(self, name: str, w: Tensor, count: int = 1) -> int:
        """Address of `w` [count * n, k] (or [count, n, k]) as `count` packed matrices."""
        rows, k = w.numel() // max(1, w.shape[-1]), w.shape[-1]
        key = (w.data_ptr(), rows, k, count)
        return self._get(name, w, key, lambda: self._pack(w.reshape(count, rows // count, k)))

    def int32(self, name: str, table: Tensor) -> int:
        """Address of `table` as contiguous int32."""
        key = (table.data_ptr(), table.shape, table.dtype)
        return self._get(name, table, key, lambda: table.to(torch.int32).contiguous())

    def _get(self, name: str, w: Tensor, key: object, make: Callable[[], Tensor]) -> int:
        version = -1 if w.is_inference() else w._version  # noqa: SLF001 - torch's own change counter
        found = self._kept.get(key)
        if found is None or found[0] != version:
            if not w.is_cpu:
                refuse(name, w.device, "a weight on the CPU")
            found = self._kept[key] = (version, w, make())
            if len(self._kept) > MOST_WEIGHTS:
                self._kept.popitem(last=False)
        return found[2].data_ptr()

    def _pack(self, w: Tensor) -> Tensor:
        count, n, k = w.shape
        if w.dtype is not torch.float32:
            refuse("weight", w.dtype, torch.float32)
        w = w.contiguous()
        size = self._library.k_packed_size(n, k)
        packed = torch.empty((count, size), dtype=torch.float32)
        for i in range(count):
            self._library.k_pack(w[i].data_ptr(), n, k, k, packed[i].data_ptr())
        return packed
