"""KV rows in e4m3 with block scales: what is written, and what attention makes of it.

Claim: rows read back are exactly those of the format (e4m3 with a power-of-two scale a block, bf16
  in the rotated tail); that rounding stays within .05 nats of KL at the logits.
Why it breaks in practice: a row gets one scale where blocks are declared, a scale rounds down so
  that values saturate, the rotated tail is rounded to e4m3 too.
A failure means: rows are not stored as declared, or eight bits are too few for these rows.
Cost: about 8 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Op, Stack
from kernels import Settings
from reference.attention import sparse_attention as true_attention
from reference.fp8_kv import round_kv_rows
from suites.patches import flash_shapes
from suites.patches.binding import SETTINGS, bound, bound_without, on_cpu
from suites.patches.declared import declared
from suites.patches.decode_inputs import true_sequences
from suites.patches.examination import Examination
from suites.patches.harvest import Harvest
from suites.patches.harvested_inputs import row_cases
from suites.patches.harvested_selection import settings_of
from suites.patches.paged import Pages, others_stay, stale
from suites.patches.synthetic import head, normal, rms, structured

DIM, ROPE = SETTINGS.head_dim, SETTINGS.rope_dim
BLOCK = 32  # the largest of 64, 32 and 16 that divides 96
PAGE = 16


def e4m3_blocks(kv: Tensor) -> Tensor:
    """Rows [..., D] in the format and back."""
    return round_kv_rows(kv.flatten(0, -2), rope_dim=ROPE, block=BLOCK).view(kv.shape)


def stored(store: Op, kv: Tensor) -> Tensor:
    """Write rows [T, D] of one sequence by `store_window`, and read them back."""
    pages = Pages(torch.arange(len(kv), device=kv.device), PAGE)
    pool = torch.full((pages.pages, PAGE, kv.shape[1]), float("nan"), device=kv.device)
    store(pool, kv, pages.batch)
    at = torch.arange(len(kv), device=kv.device)
    return pool[pages.table[at, at // PAGE].long(), at % PAGE]


def storing(store: Op) -> Op:
    """The op under test: rows in, what lies in the pool out."""
    return lambda kv: stored(store, kv)


def same(kv: Tensor) -> Tensor:
    """The truth of a store on rows that were rounded before."""
    return kv.clone()


def test_rows_are_those_of_the_format(examination: Examination) -> None:
    """Noise, outliers, sparse and equal rows, all sizes; NaN and Inf; poisoned pages."""
    ops, generator = bound(examination), examination.generator()
    cases = [Case(name, {"kv": rows}) for name, rows in structured(generator, 24, DIM)]
    examination.patch(
        storing(ops.store_window),
        same,
        same,
        cases,
        dtype=torch.float32,
        formats={"kv": e4m3_blocks},
        row_inputs=("kv",),
        special=("kv",),
        calls=lambda: ops.calls["patch.fp8_kv"],
    )


def test_rows_of_the_large_model(examination: Examination) -> None:
    """448 channels in seven blocks of 64, and 64 that are rotated."""
    ops = bound(examination, settings=flash_shapes.SETTINGS)

    def declared(kv: Tensor) -> Tensor:
        return round_kv_rows(kv, rope_dim=flash_shapes.ROPE, block=64)

    examination.patch(
        storing(ops.store_window),
        same,
        same,
        Case("150 rows of 512", {"kv": flash_shapes.kv_rows(examination.generator(), 150)}),
        dtype=torch.float32,
        formats={"kv": declared},
        calls=lambda: ops.calls["patch.fp8_kv"],
    )


def test_rows_that_are_not_written_stay(examination: Examination) -> None:
    """A store changes the rows of its own tokens and closed entries, and no other bit."""
    ops, m = bound(examination), 4
    counts = (1, 6, 17, 1)
    last = torch.tensor([150, 40, 99, 64], device=examination.device)
    pages = Pages(last, PAGE, counts=counts)
    batch = pages.batch
    seq, index = batch.closed_entries(m)
    rows = normal(examination.generator(), sum(counts) + len(seq), DIM).to(examination.device)
    new, entries = rows[: sum(counts)], rows[sum(counts) :]
    window, compressed = (
        stale(torch.empty(pages.pages, slots, DIM, device=examination.device))
        for slots in (PAGE, PAGE // m)
    )
    before = window.clone(), compressed.clone()
    ops.store_window(window, new, batch)
    ops.store_entries(compressed, entries, seq, index, m, batch)
    slots = batch.window_slots(), batch.entry_slots(seq, index, m)
    examination.must(
        "other rows that stay",
        holds=all(map(others_stay, before, (window, compressed), slots)),
        sentence="storing rows changes rows of the pool that belong to others",
    )


@given(
    rows=st.integers(1, 30),
    blocks=st.integers(1, 6),
    block=st.sampled_from([16, 32, 64]),
    rope=st.sampled_from([0, 2, 10]),
    power=st.integers(-12, 12),
)
def test_irregular_shapes(
    examination: Examination, rows: int, blocks: int, block: int, rope: int, power: int
) -> None:
    """Any number of rows and blocks, and rows of any size."""
    settings = Settings(
        index_topk=1, index_head_dim=32, implementation="torch", rope_dim=rope,
        head_dim=rope + (2 * blocks + 1) * block,
    )  # fmt: skip

    def declared(kv: Tensor) -> Tensor:
        return round_kv_rows(kv, rope_dim=rope, block=block)

    kv = normal(examination.generator(), rows, settings.head_dim) * 10.0**power
    examination.patch(
        storing(bound(examination, settings=settings).store_window),
        same,
        same,
        Case(f"{rows} rows of {settings.head_dim}, 1e{power}", {"kv": kv}),
        dtype=torch.float32,
        formats={"kv": declared},
        must_differ=False,
    )


def test_compounding(examination: Examination) -> None:
    """21, 43 and 61 layers over stored rows: near the format's maths, and no growth."""
    generator = examination.generator()
    tokens, heads = 8, 2
    hidden = heads * DIM
    rows = [normal(generator, 40, DIM) for _ in range(61)]
    project = [normal(generator, hidden, hidden) * hidden**-0.5 for _ in range(61)]

    def attend(store: Op) -> Op:
        return lambda q, kv: true_sequences(
            q,
            store(kv).expand(len(q), -1, -1),
            None,
            None,
            torch.zeros(heads, device=q.device),
            torch.full((len(q),), len(kv) - 1, device=q.device),
            len(kv),
            None,
            DIM**-0.5,
        )

    def step(op: Op, x: Tensor, layer: int) -> Tensor:
        q = (rms(x) @ project[layer].to(x.device)).view(tokens, heads, DIM) * 3
        made = op(q=q, kv=rows[layer].to(x.device))
        return x + 0.15 * rms(made.flatten(1))

    stack = Stack(
        step=step, start=normal(generator, tokens, hidden), head=head(generator, 256, hidden)
    )
    store = storing(bound(examination).store_window)
    maths = attend(same)
    examination.compounding(
        attend(store), maths, stack, declared=declared(maths, maths, formats={"kv": e4m3_blocks})
    )


def test_whole_model(examination: Examination) -> None:
    """All window rows and entries of a checkpoint in this format: KL at the logits."""
    store = on_cpu(examination, storing(bound(examination).store_window))
    examination.whole_model(sparse_attention=over_stored(store))


def test_harvested_rows(harvested: Examination, harvest: Harvest) -> None:
    """Window rows and entries of a running engine, to the bit; its text at the logits."""
    settings, opening = settings_of(harvest), harvest.opening()
    ops = bound(harvested, settings=settings)
    plain = settings.head_dim - settings.rope_dim
    block = next(block for block in (64, 32, 16) if plain % block == 0)

    def declared(kv: Tensor) -> Tensor:
        return round_kv_rows(kv, rope_dim=settings.rope_dim, block=block)

    harvested.patch(
        storing(ops.store_window),
        same,
        same,
        row_cases(harvest),
        dtype=torch.float32,
        formats={"kv": declared},
        calls=lambda: ops.calls["patch.fp8_kv"],
    )
    stored = over_stored(on_cpu(harvested, storing(ops.store_window)))
    harvested.whole_model(opening, sparse_attention=stored)


def over_stored(store: Op) -> Op:
    """The reference's attention over rows that were stored."""

    def attention(
        q: Tensor,
        kv: Tensor,
        entries: Tensor | None,
        selected: Tensor | None,
        sinks: Tensor,
        **options: Any,
    ) -> Tensor:
        kept = store(entries) if entries is not None and len(entries) else entries
        return true_attention(q, store(kv), kept, selected, sinks, **options)

    return attention


def test_attention_reads_what_was_stored(examination: Examination) -> None:
    """Window rows and entries go through the patch on their way into the pools."""
    ops, off = bound(examination), bound_without(examination)
    kv = normal(examination.generator(), 20, DIM).to(examination.device)
    pages = Pages(torch.tensor([79], device=kv.device), PAGE)
    pool = pages.pool(torch.zeros(1, 80, DIM, device=kv.device), 4)
    at = torch.arange(20, dtype=torch.int32, device=kv.device)
    for op, want in ((ops, e4m3_blocks(kv)), (off, kv)):
        op.store_entries(pool, kv, torch.zeros_like(at), at, 4, pages.batch)
        got = pool[pages.table[0, at.long() // 4].long(), at.long() % 4]
        equal = bool(torch.equal(got, want))
        examination.must(
            "entries stored as declared",
            holds=equal,
            sentence="entries in the pool are not those of the format",
        )
    examination.ran(ops, off, "store_window")
