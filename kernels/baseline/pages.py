"""Writing rows into paged pools."""

from torch import Tensor

from kernels.batch import PagedBatch
from kernels.checks import check_int32, check_rate, check_real, check_shape


def store_window(pool: Tensor, kv: Tensor, batch: PagedBatch) -> None:
    """Write each token's row at its position.

    Args:
        pool: [P, page_size, D], changed.
        kv: [T, D].
        batch: positions and pages.
    """
    check_shape("kv", kv, batch.positions.numel(), pool.shape[-1])
    check_real("kv", kv)
    check_shape("pool", pool, -1, batch.page_size, -1)
    batch.check_pool("pool", pool.shape[0])
    pool.view(-1, pool.shape[-1])[batch.window_slots()] = kv.to(pool.dtype)


def store_entries(
    pool: Tensor, entries: Tensor, entry_seq: Tensor, entry_index: Tensor, m: int, batch: PagedBatch
) -> None:
    """Write compressed entries.

    Args:
        pool: [P, page_size // m, D], changed.
        entries: [N, D].
        entry_seq: int32 [N], as `compress` returns it.
        entry_index: int32 [N], as `compress` returns it; of windows that are closed.
        m: tokens of an entry.
        batch: pages.
    """
    check_rate(m, batch.page_size)
    check_shape("pool", pool, -1, batch.page_size // m, -1)
    check_shape("entries", entries, -1, pool.shape[-1])
    check_int32("entry_seq", entry_seq, entries.shape[0])
    check_int32("entry_index", entry_index, entries.shape[0])
    batch.check_pool("pool", pool.shape[0])
    batch.check_entries(entry_seq, entry_index, m)
    slots = batch.entry_slots(entry_seq, entry_index, m)
    pool.view(-1, pool.shape[-1])[slots] = entries.to(pool.dtype)
