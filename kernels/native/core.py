"""What the native ops share: the library, packed weights, tensors as addresses."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from kernels.batch import PagedBatch
from kernels.checks import refuse
from kernels.index_keys import IndexKeys
from kernels.native.library import declare, native_batch
from kernels.native.packing import PackedWeights


def address(name: str, x: Tensor) -> int:
    """Address of a contiguous fp32 tensor on the CPU."""
    if x.dtype is not torch.float32 or not x.is_cpu or not x.is_contiguous():
        layout = "contiguous" if x.is_contiguous() else "strided"
        refuse(name, f"{layout} {x.dtype} on {x.device}", "contiguous float32 on the CPU")
    return x.data_ptr()


def rows(name: str, x: Tensor) -> tuple[Tensor, int, int]:
    """(x, address, row stride) of [T, ...] with contiguous rows, copied if they are not.

    The caller keeps the returned tensor until C is done.
    """
    if x.dtype is not torch.float32 or not x.is_cpu:
        refuse(name, f"{x.dtype} on {x.device}", "float32 on the CPU")
    if not x.is_contiguous():
        if x[:1].is_contiguous():
            return x, x.data_ptr(), x.stride(0)
        x = x.contiguous()
    return x, x.data_ptr(), x.numel() // max(1, x.shape[0])


def succeed(code: int, op: str) -> None:
    """Raise what a C function's return code means."""
    if code == 1:
        raise MemoryError(f"{op}: no memory for the scratch block of this batch")
    if code == 2:
        refuse(
            op,
            "an id outside its table",
            "sequences and entries of the batch, token ids < V, expert ids < E",
        )


class NativeCore:
    """State of the native ops; one thread calls at a time."""

    def __init__(self, library: ctypes.CDLL, keys: IndexKeys) -> None:
        """Keep the library and the format in which index keys are stored."""
        self._c: Any = declare(library)
        self._c.k_keep_memory()
        self._weights = PackedWeights(library)
        self._keys = keys
        self._keys_store = keys.store  # `Ops` puts a counted one in its place

    def _batch(self, batch: PagedBatch, name: str = "", pool: Tensor | None = None) -> Any:
        """Pointer to the batch for C; refuses a pool that lacks a page of it."""
        found = native_batch(batch, self._c)
        if pool is not None and pool.shape[0] < found.pages:
            refuse(name, f"{pool.shape[0]} pages", f"at least {found.pages}, as page_table says")
        return found.pointer
