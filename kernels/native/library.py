"""The C functions as ctypes sees them: argument types, and the batch as C reads it."""

import ctypes
from ctypes import POINTER, Structure, c_float, c_int, c_ssize_t, c_void_p
from typing import Any, NamedTuple

import torch

from kernels.batch import MOST_PAGES, PAGES_IN_USE, PagedBatch
from kernels.checks import check_shape, refuse

P, N, F, I = c_void_p, c_ssize_t, c_float, c_int  # pointer, size, float, int


class BatchStruct(Structure):
    """`Batch` of pages.h."""

    _fields_ = (
        *((name, P) for name in ("positions", "token_seq", "page_table", "query_start")),
        *((name, P) for name in ("seq_lens", "token_ids")),
        *((name, N) for name in ("tokens", "seqs", "max_pages", "page_size")),
    )


B = POINTER(BatchStruct)
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "k_keep_memory": (None, ()),
    "k_packed_size": (N, (N, N)),
    "k_pack": (None, (P, N, N, N, P)),
    "k_linear": (None, (P, N, N, P, N, N, P)),
    "k_rms_norm": (None, (P, N, N, N, P, F, P)),
    "k_rope": (None, (P, N, N, N, N, P, P, N, I, P)),
    "k_norm_rope": (None, (P, N, N, N, N, P, F, P, P, N, P)),
    "k_mhc_pre": (None, (P, N, I, N, P, P, P, F, F, I, P, P, P)),
    "k_mhc_post": (None, (P, P, N, I, N, P, P, P)),
    "k_mhc_head": (None, (P, N, I, N, P, P, P, F, F, P)),
    "k_check_batch": (N, (B,)),
    "k_store_window": (None, (P, N, P, N, B)),
    "k_store_entries": (I, (P, N, P, N, P, P, N, B)),
    "k_compress": (None, (P, N, P, N, P, P, P, N, F, N, I, N, P, P, B, P, P, P)),
    "k_sparse_attention": (I, (P, N, N, N, P, P, P, N, P, N, N, F, B, P)),
    "k_walsh_hadamard": (None, (P, N, N, F, P)),
    "k_index_select": (I, (P, N, P, N, P, P, P, I, N, N, N, N, B, P)),
    "k_route": (I, (P, N, P, N, N, P, P, N, N, F, B, P, P)),
    "k_shared_expert": (I, (P, N, N, N, P, P, P, N, F, P)),
    "k_experts": (I, (P, N, N, N, P, P, N, P, P, N, N, F, P)),
    "k_grouped_output": (I, (P, N, N, N, P, N, P, N, P)),
}


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Give each function its types; ctypes then checks the number of arguments too."""
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class NativeBatch(NamedTuple):
    """A batch as C reads it, and the number of pages that a pool must have for it."""

    pointer: Any
    pages: int


def native_batch(batch: PagedBatch, library: Any) -> NativeBatch:
    """Checked and made once a batch; the batch keeps its tensors alive."""
    found = batch.cache.get("native")
    if found is None:
        pointer = ctypes.pointer(_batch_struct(batch))
        largest = library.k_check_batch(pointer)
        if largest < -1:
            batch.validate(pages=MOST_PAGES)  # says in words what C has seen
            refuse("batch", "fields that do not agree", "what PagedBatch describes")
        found = batch.cache["native"] = NativeBatch(pointer, largest + 1)
        batch.cache[PAGES_IN_USE] = largest + 1
    return found


def _batch_struct(batch: PagedBatch) -> BatchStruct:
    tokens, seqs = batch.positions.numel(), batch.seq_lens.numel()
    shapes = {
        "positions": (tokens,),
        "token_seq": (tokens,),
        "token_ids": (tokens,),
        "query_start": (seqs + 1,),
        "seq_lens": (seqs,),
        "page_table": (seqs, batch.page_table.shape[-1]),
    }
    addresses = {}
    for name, shape in shapes.items():
        tensor = getattr(batch, name)
        if tensor.dtype is not torch.int32 or not tensor.is_cpu or not tensor.is_contiguous():
            refuse(name, f"{tensor.dtype} on {tensor.device}", "contiguous int32 on the CPU")
        check_shape(name, tensor, *shape)
        addresses[name] = tensor.data_ptr()
    if batch.page_size < 1:
        refuse("page_size", batch.page_size, "a positive number of tokens")
    return BatchStruct(
        **addresses,
        tokens=tokens,
        seqs=seqs,
        max_pages=batch.page_table.shape[1],
        page_size=batch.page_size,
    )
