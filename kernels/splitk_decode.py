"""Patch `splitk_decode`: decode attention on tensor cores, its keys split over programs.

The keys of a token are its window (oldest first), then its entries in the order given; each 64 of
them are one split. A split works in bf16 operands and fp32 sums: scores, its own maximum, weights
rounded to bf16 for the second product but summed unrounded, and leaves its normalised output with
the logarithm of its sum (LSE). A second pass merges the splits by their LSE, sink included. Which
keys share a split depends on the token alone, so its result depends on no other token.

Tokens of a sequence that has just one in the batch take this path, all others the op before it.
On CUDA these are two Triton kernels (kernels/gpu/splitk_decode.py); on the CPU their arithmetic.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.baseline.attention import check_attention, check_pages, entry_rows, window_rows
from kernels.batch import PagedBatch
from kernels.checks import check_contiguous, check_float, refuse
from kernels.fp8_rows import Fp8Rows, unpack
from kernels.patch import Installation, kernel_patch

SPLIT = 64

Pool = Tensor | Fp8Rows


def check_splitk(
    q: Tensor,
    window_pool: Pool,
    entries_pool: Pool | None,
    selected: Tensor | None,
    sinks: Tensor,
    *,
    window: int,
    m: int | None,
    scale: float,
    batch: PagedBatch,
) -> None:
    """Refuse what the kernel cannot do; shared by both forms of it."""
    check_float("q", q)
    window_shape = _shape("window_pool", window_pool, q)
    entries_shape = None if entries_pool is None else _shape("entries_pool", entries_pool, q)
    check_attention(
        q, window_shape, entries_shape, selected, sinks,
        window=window, m=m, scale=scale, batch=batch,
    )  # fmt: skip
    check_pages(window_shape, entries_shape, selected, m=m, batch=batch)
    if entries_pool is not None and isinstance(entries_pool, Fp8Rows) != isinstance(
        window_pool, Fp8Rows
    ):
        refuse("entries_pool", type(entries_pool).__name__, "rows of the same kind as the window's")


def _shape(argument: str, pool: Pool, q: Tensor) -> Tensor:
    """A tensor of the pool's shape, without values."""
    if not isinstance(pool, Fp8Rows):
        check_float(argument, pool, like=q)
        check_contiguous(argument, pool)
        return pool
    pool.check(argument)
    if pool.codes.device != q.device:
        refuse(argument, f"rows on {pool.codes.device}", f"rows on {q.device}, as q")
    return torch.empty((*pool.codes.shape[:2], pool.dim), device="meta")


def splitk_decode(
    q: Tensor,
    window_pool: Pool,
    entries_pool: Pool | None,
    selected: Tensor | None,
    sinks: Tensor,
    *,
    window: int,
    m: int | None,
    scale: float,
    batch: PagedBatch,
) -> Tensor:
    """The kernels' arithmetic on the CPU; arguments and result as `kernels.baseline.attention`.

    The pools may hold packed rows (`Fp8Rows`) too, both of them or neither.
    """
    check_splitk(
        q, window_pool, entries_pool, selected, sinks, window=window, m=m, scale=scale, batch=batch
    )
    if isinstance(window_pool, Fp8Rows):
        window_pool = unpack(window_pool)
    if isinstance(entries_pool, Fp8Rows):
        entries_pool = unpack(entries_pool)
    everything = slice(0, q.shape[0])
    rows, visible = window_rows(window_pool, everything, window, batch)
    if entries_pool is not None and m is not None:
        more, seen = entry_rows(entries_pool, selected, everything, m, batch)
        rows, visible = torch.cat((rows, more), dim=1), torch.cat((visible, seen), dim=1)
    short = -rows.shape[1] % SPLIT
    rows = torch.nn.functional.pad(rows, (0, 0, 0, short))
    visible = torch.nn.functional.pad(visible, (0, short))
    rows = rows.bfloat16().float().masked_fill(~visible[..., None], 0.0)
    parts, lse = [], []
    for first in range(0, rows.shape[1], SPLIT):
        keys, seen = rows[:, first : first + SPLIT], visible[:, first : first + SPLIT]
        part, log_sum = _split(q.bfloat16().float(), keys, seen, scale)
        parts.append(part)
        lse.append(log_sum)
    return merge(torch.stack(parts), torch.stack(lse), sinks.float()).to(q.dtype)


def _split(q: Tensor, keys: Tensor, seen: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Output fp32 [T, Hq, D] of one split, normalised, and its LSE [T, Hq]; -inf when empty."""
    scores = torch.einsum("thd,tsd->ths", q, keys) * scale
    scores = scores.masked_fill(~seen[:, None], float("-inf"))
    top = scores.amax(-1, keepdim=True)
    top = torch.where(top == float("-inf"), 0.0, top)
    weights = torch.exp(scores - top)
    total = weights.sum(-1)
    out = torch.einsum("ths,tsd->thd", weights.bfloat16().float(), keys)
    empty = total == 0
    out = out / torch.where(empty, 1.0, total)[..., None]
    return out, torch.where(empty, float("-inf"), top[..., 0] + torch.log(total))


def merge(parts: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """Weigh splits [S, T, Hq, D] by their LSE [S, T, Hq]; the sink [Hq] has the value zero."""
    top = torch.maximum(lse.amax(0), sinks)
    share = torch.exp(lse - top)
    total = share.sum(0) + torch.exp(sinks - top)
    return (share[..., None] * parts).sum(0) / total[..., None]


def decode_first(
    run: Callable[..., Tensor], rest: Callable[..., Tensor], count: Callable[[], None]
) -> Callable[..., Tensor]:
    """`sparse_attention` that gives decode tokens to `run` and all others to `rest`."""

    def sparse_attention(
        q: Tensor,
        window_pool: Pool,
        entries_pool: Pool | None,
        selected: Tensor | None,
        sinks: Tensor,
        *,
        batch: PagedBatch,
        **options: Any,
    ) -> Tensor:
        """See kernels/baseline/attention.py."""
        decode, others = batch.split()
        if decode is None:
            return rest(q, window_pool, entries_pool, selected, sinks, batch=batch, **options)
        if others is None:
            count()
            return run(q, window_pool, entries_pool, selected, sinks, batch=batch, **options)
        out = torch.empty_like(q)
        for part, op in ((decode, run), (others, rest)):
            picks = None if selected is None else selected[part.tokens]
            out[part.tokens] = op(
                q[part.tokens], window_pool, entries_pool, picks, sinks,
                batch=part.batch, **options,
            )  # fmt: skip
        count()
        return out

    return sparse_attention


def _install(into: Installation) -> None:
    if into.on_gpu:
        from kernels.gpu.splitk_decode import splitk_decode as run
    else:
        run = splitk_decode
    into.functions["sparse_attention"] = decode_first(
        run, into.functions["sparse_attention"], into.count
    )


PATCH = kernel_patch(
    "splitk_decode",
    phase="decode",
    summary="tensor-core split-K sparse decode attention with LSE merge",
    source="FlashDecoding / FlashMLA sparse decode",
    install=_install,
)
