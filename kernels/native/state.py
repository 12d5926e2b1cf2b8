"""What is written into pages, in C; meaning: kernels/baseline/{pages,compress}.py."""

import torch
from torch import Tensor, empty

from kernels.baseline.compress import check_compress
from kernels.batch import PagedBatch
from kernels.checks import check_int32, check_rate, check_shape, refuse
from kernels.index_keys import KeyStorage
from kernels.native.core import NativeCore, address, rows, succeed

MAX_SLOTS = 256  # MAX_SLOTS of compress.c


class PageWriters(NativeCore):
    """See kernels/baseline/pages.py, compress.py and IndexKeys.store."""

    def store_window(self, pool: Tensor, kv: Tensor, batch: PagedBatch) -> None:
        """See kernels/baseline/pages.py."""
        check_shape("kv", kv, batch.positions.numel(), pool.shape[-1])
        check_shape("pool", pool, -1, batch.page_size, -1)
        kv, data, stride = rows("kv", kv)
        self._c.k_store_window(
            address("pool", pool), pool.shape[-1], data, stride, self._batch(batch, "pool", pool)
        )

    def store_entries(
        self,
        pool: Tensor,
        entries: Tensor,
        entry_seq: Tensor,
        entry_index: Tensor,
        m: int,
        batch: PagedBatch,
    ) -> None:
        """See kernels/baseline/pages.py."""
        check_rate(m, batch.page_size)
        check_shape("pool", pool, -1, batch.page_size // m, -1)
        check_shape("entries", entries, -1, pool.shape[-1])
        check_int32("entry_seq", entry_seq, entries.shape[0])
        check_int32("entry_index", entry_index, entries.shape[0])
        code = self._c.k_store_entries(
            address("pool", pool), pool.shape[-1], address("entries", entries), entries.shape[0],
            entry_seq.data_ptr(), entry_index.data_ptr(), m, self._batch(batch, "pool", pool),
        )  # fmt: skip
        if code == 2:
            batch.check_entries(entry_seq, entry_index, m)  # says in words what C has seen
        succeed(code, "store_entries")

    def store_keys(
        self,
        storage: KeyStorage,
        keys: Tensor,
        entry_seq: Tensor,
        entry_index: Tensor,
        m: int,
        batch: PagedBatch,
    ) -> None:
        """See `IndexKeys.store`; fp32 rows are written in C."""
        if not keys.shape[0]:
            return
        if storage.format.name == "fp32" and not storage.format.rotate:
            self.store_entries(storage.codes, keys, entry_seq, entry_index, m, batch)
        else:
            self._keys_store(storage, keys, entry_seq, entry_index, m, batch)

    def compress(
        self,
        kv: Tensor,
        gate: Tensor,
        ring: Tensor,
        ape: Tensor,
        norm_weight: Tensor,
        *,
        eps: float,
        m: int,
        overlap: bool,
        rope_dim: int,
        cos_sin: tuple[Tensor, Tensor],
        batch: PagedBatch,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See kernels/baseline/compress.py."""
        check_compress(
            kv, gate, ring, ape, norm_weight, m=m, overlap=overlap, rope_dim=rope_dim, batch=batch
        )
        if m * (2 if overlap else 1) > MAX_SLOTS:
            refuse("m", m, f"at most {MAX_SLOTS} slots a window")
        count, reach = _closed(batch, m)
        cos, sin = cos_sin
        if cos.shape[0] < reach or sin.shape != cos.shape or cos.shape[1] != rope_dim // 2:
            refuse("cos_sin", list(cos.shape), f"[>= {reach}, {rope_dim // 2}] for this batch")
        dim = norm_weight.shape[0]
        kv, kv_data, kv_stride = rows("kv", kv)
        gate, gate_data, gate_stride = rows("gate", gate)
        entries = empty((count, dim))
        seq, index = empty(count, dtype=torch.int32), empty(count, dtype=torch.int32)
        self._c.k_compress(
            kv_data, kv_stride, gate_data, gate_stride, address("ring", ring),
            address("ape", ape), address("norm_weight", norm_weight), dim, eps, m, overlap,
            rope_dim, address("cos", cos), address("sin", sin), self._batch(batch, "ring", ring),
            entries.data_ptr(), seq.data_ptr(), index.data_ptr(),
        )  # fmt: skip
        return entries, seq, index


def _closed(batch: PagedBatch, m: int) -> tuple[int, int]:
    """(windows that this batch closes, cos and sin rows that their positions need)."""

    def make() -> tuple[int, int]:
        """See kernels/baseline/state.py."""
        starts, ends = batch.starts().tolist(), batch.seq_lens.tolist()
        closed = [(start // m, end // m) for start, end in zip(starts, ends, strict=True)]
        reach = max(((last - 1) * m + 1 for first, last in closed if last > first), default=0)
        return sum(last - first for first, last in closed), reach

    return batch.derive(("native closed", m), make)
