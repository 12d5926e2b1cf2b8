"""Indexer and attention in C; meaning: kernels/baseline/{indexer,attention}.py."""

import ctypes

import torch
from torch import Tensor, empty

from kernels.baseline.attention import check_attention
from kernels.baseline.indexer import check_index_select
from kernels.batch import PagedBatch
from kernels.checks import refuse
from kernels.index_keys import FORMATS, IndexKeys, KeyStorage, code_values
from kernels.native.core import NativeCore, address, rows, succeed


class PageReaders(NativeCore):
    """See kernels/baseline/indexer.py and attention.py."""

    def __init__(self, library: ctypes.CDLL, keys: IndexKeys) -> None:
        """Make the table of code values for the format of the keys."""
        super().__init__(library, keys)
        self._format = FORMATS.index(keys.format.name)  # the enum of index_select.c
        self._values = _value_table(keys.format.name)

    def index_select(
        self,
        q: Tensor,
        weights: Tensor,
        storage: KeyStorage,
        *,
        m: int,
        topk: int,
        batch: PagedBatch,
    ) -> Tensor:
        """See kernels/baseline/indexer.py."""
        check_index_select(q, weights, storage, m=m, topk=topk, batch=batch)
        if storage.format != self._keys.format:
            refuse("storage", f"keys as {storage.format.text()}", self._keys.format.text())
        tokens, heads, dim = q.shape
        q = q.contiguous()
        data = address("q", q)
        if self._keys.format.rotate:
            turned = empty(q.shape)
            self._c.k_walsh_hadamard(data, tokens * heads, dim, dim**-0.5, turned.data_ptr())
            q, data = turned, turned.data_ptr()
        weights, weights_data, stride = rows("weights", weights)
        scales = storage.scales
        out = empty((tokens, topk), dtype=torch.int32)
        code = self._c.k_index_select(
            data, heads, weights_data, stride, storage.codes.data_ptr(),
            None if scales is None else scales.data_ptr(), self._values.data_ptr(), self._format,
            dim, 1 if scales is None else scales.shape[-1], m, topk,
            self._batch(batch, "storage", storage.codes), out.data_ptr(),
        )  # fmt: skip
        succeed(code, "index_select")
        return out

    def sparse_attention(
        self,
        q: Tensor,
        window_pool: Tensor,
        entries_pool: Tensor | None,
        selected: Tensor | None,
        sinks: Tensor,
        *,
        window: int,
        m: int | None,
        scale: float,
        batch: PagedBatch,
    ) -> Tensor:
        """See kernels/baseline/attention.py."""
        check_attention(
            q, window_pool, entries_pool, selected, sinks,
            window=window, m=m, scale=scale, batch=batch,
        )  # fmt: skip
        _, heads, dim = q.shape
        q, data, stride = rows("q", q)
        picks = None
        if selected is not None:
            selected = selected.contiguous()
            picks = selected.data_ptr()
        if entries_pool is not None:
            self._batch(batch, "entries_pool", entries_pool)
        out = empty(q.shape)
        code = self._c.k_sparse_attention(
            data, stride, heads, dim, address("window_pool", window_pool),
            None if entries_pool is None else address("entries_pool", entries_pool), picks,
            0 if selected is None else selected.shape[1], address("sinks", sinks), window, m or 1,
            scale, self._batch(batch, "window_pool", window_pool), out.data_ptr(),
        )  # fmt: skip
        if code == 2 and selected is not None and m is not None:
            batch.check_selected(selected, m)  # says in words what C has seen
        succeed(code, "sparse_attention")
        return out


def _value_table(name: str) -> Tensor:
    """fp32: what each code stands for, before its scale."""
    if name == "fp8":
        return torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    if name in ("fp4", "int4"):
        return torch.tensor(code_values(name))
    return torch.zeros(1)
