"""Patch `indexer_triton`: decode scores only the entries that there are, then takes the top-k.

Scores of a token end at its own sequence's length, not at the longest of the batch or at the limit
of the model. Queries and keys are bf16 in the product, summed in fp32; a key with one scale a row
enters as its code (exact in bf16), and the scale comes after the relu (it is positive); with a
scale a block it enters as code times scale, rounded to bf16. The best `topk` follow in the total
order of kernels/baseline/indexer.py: score, then lowest index; NaN last.

Tokens of a sequence that has just one in the batch take this path, all others the op before it.
On CUDA these are two Triton kernels (kernels/gpu/indexer_triton.py); on the CPU their arithmetic.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.baseline.indexer import check_index_select, select_top
from kernels.batch import PagedBatch
from kernels.checks import check_contiguous, check_float, refuse
from kernels.index_keys import IndexKeys, KeyStorage, walsh_hadamard
from kernels.patch import Installation, kernel_patch


def check_decode(
    q: Tensor, weights: Tensor, storage: KeyStorage, *, m: int, topk: int, batch: PagedBatch
) -> None:
    """Refuse what the kernel cannot do; shared by both forms of it."""
    check_index_select(q, weights, storage, m=m, topk=topk, batch=batch)
    check_float("q", q)
    check_float("weights", weights, like=q)
    for tensor in storage.tensors():
        check_contiguous("storage", tensor)
    batch.check_pool("storage", storage.codes.shape[0])
    if storage.codes.device != q.device:
        refuse("storage", f"keys on {storage.codes.device}", f"keys on {q.device}, as q")


def index_select(
    q: Tensor, weights: Tensor, storage: KeyStorage, *, m: int, topk: int, batch: PagedBatch
) -> Tensor:
    """The kernels' arithmetic on the CPU; arguments and result as `kernels.baseline.indexer`."""
    check_decode(q, weights, storage, m=m, topk=topk, batch=batch)
    if storage.format.rotate:
        q = walsh_hadamard(q.float())
    q, weights = q.bfloat16().float(), weights.float()
    visible = (batch.positions.long() + 1) // m
    scores = q.new_full((q.shape[0], int(visible.max()) if visible.numel() else 0), float("-inf"))
    for t, count in enumerate(visible.tolist()):
        if count:
            scores[t, :count] = _scores(q[t], weights[t], storage, t, count, m=m, batch=batch)
    return select_top(scores, visible, topk)


def _scores(
    q: Tensor,
    weights: Tensor,
    storage: KeyStorage,
    t: int,
    count: int,
    *,
    m: int,
    batch: PagedBatch,
) -> Tensor:
    """fp32 [count]: one token against the entries of its own sequence."""
    index = torch.arange(count, device=q.device)
    slots = batch.entry_slots(batch.token_seq[t].expand_as(index), index, m)
    keys, row_scale = row_values(storage, slots)
    made = torch.relu(keys @ q.T) @ weights
    return made if row_scale is None else made * row_scale


def row_values(storage: KeyStorage, slots: Tensor) -> tuple[Tensor, Tensor | None]:
    """What enters the product, bf16 values fp32 [N, Di], and the scale [N] that comes after it."""
    values, scales = IndexKeys(storage.format).read_parts(storage, slots)
    if scales is None:
        return values.bfloat16().float(), None
    if storage.format.scale == "row":
        return values, scales[:, 0]
    groups = values.unflatten(1, (scales.shape[1], -1))
    return (groups * scales[..., None]).flatten(1).bfloat16().float(), None


def decode_first(
    run: Callable[..., Tensor], rest: Callable[..., Tensor], count: Callable[[], None]
) -> Callable[..., Tensor]:
    """`index_select` that gives decode tokens to `run` and all others to `rest`."""

    def index_select(
        q: Tensor, weights: Tensor, storage: KeyStorage, *, batch: PagedBatch, **options: Any
    ) -> Tensor:
        """See kernels/baseline/indexer.py."""
        decode, others = batch.split()
        if decode is None:
            return rest(q, weights, storage, batch=batch, **options)
        if others is None:
            count()
            return run(q, weights, storage, batch=batch, **options)
        out = torch.empty((q.shape[0], options["topk"]), dtype=torch.int32, device=q.device)
        for part, op in ((decode, run), (others, rest)):
            out[part.tokens] = op(
                q[part.tokens], weights[part.tokens], storage, batch=part.batch, **options
            )
        count()
        return out

    return index_select


def _install(into: Installation) -> None:
    if into.on_gpu:
        from kernels.gpu.indexer_triton import index_select as run
    else:
        run = index_select
    into.functions["index_select"] = decode_first(run, into.functions["index_select"], into.count)


PATCH = kernel_patch(
    "indexer_triton",
    phase="decode",
    summary="indexer scores only up to the real sequence length, not the maximum",
    source="lightning indexer kernels of public serving stacks",
    install=_install,
)
