"""Split-K decode attention over a paged window, compressed entries and a sink.

Claim: each token's output errs at most twice as much as plain torch in bf16, at any length, with
  and without selection, and no row of another page, sequence or open window enters it.
Why it breaks in practice: the last split is dropped when lengths do not divide, splits are merged
  without their sums, the sink is counted once a split, an entry is visible one window too late.
A failure means: decode reads other rows, or weighs them otherwise, than prefill does.
Cost: about 15 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Op, Stack
from kernels.fp8_rows import pack
from reference.fp8_kv import round_kv_rows
from suites.patches import flash_shapes
from suites.patches.binding import bound, bound_without, on_cpu
from suites.patches.declared import declared
from suites.patches.decode_inputs import (
    mixed,
    mixed_attention,
    paged_attention,
    plain_bf16,
    sequences,
    token_by_token,
    true_sequences,
)
from suites.patches.examination import Examination
from suites.patches.harvest import Harvest
from suites.patches.harvested_inputs import decode_cases
from suites.patches.harvested_selection import settings_of
from suites.patches.synthetic import bf16, head, normal, rms

HEADS, DIM, WINDOW = 5, 48, 40
FORMATS = {"q": bf16, "kv": bf16, "entries": bf16}
ROPE, BLOCK = 16, 16
LAYOUTS: dict[str, dict[str, Any]] = {
    "window alone": {"m": None, "topk": 0},
    "selected entries": {"m": 4, "topk": 29},
    "all entries": {"m": 16, "topk": 0},
}


def packed_rows(rows: Tensor) -> Tensor:
    """Rows [B, S, D] in e4m3 with block scales, and back."""
    flat = round_kv_rows(rows.flatten(0, 1).cpu(), rope_dim=ROPE, block=BLOCK)
    return flat.view(rows.shape).to(rows.device)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lengths_and_sharpness(examination: Examination, layout: str) -> None:
    """Every residue around splits, pages and windows; flat and sharp weights; NaN and Inf."""
    ops, generator = bound(examination), examination.generator()
    shape: dict[str, Any] = {"heads": HEADS, "dim": DIM, "window": WINDOW, **LAYOUTS[layout]}
    cases = [
        Case(f"{layout}, {name}", sequences(generator, positions, sharp=sharp, **shape))
        for name, positions in (
            ("short", [0, 1, 2, 3, 15, 16]),
            ("around a window", [38, 39, 40, 41, 63, 64]),
            ("long", [127, 300, 511, 512]),
        )
        for sharp in (1.0, 6.0)
    ]
    examination.patch(
        paged_attention(ops.sparse_attention),
        plain_bf16,
        true_sequences,
        cases,
        dtype=torch.bfloat16,
        formats={name: f for name, f in FORMATS.items() if name != "entries" or shape["m"]},
        keep=("sinks",),
        special=("q",),
        calls=lambda: ops.calls["patch.splitk_decode"],
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_fp8_rows(examination: Examination, layout: str) -> None:
    """Rows as `fp8_kv` declares them, read from their bytes; poisoned pages hold NaN scales."""
    ops, generator = bound(examination), examination.generator()
    shape: dict[str, Any] = {"heads": HEADS, "dim": DIM, "window": WINDOW, **LAYOUTS[layout]}
    examination.patch(
        paged_attention(ops.sparse_attention, partial(pack, rope_dim=ROPE, block=BLOCK)),
        plain_bf16,
        true_sequences,
        Case(f"{layout}, packed rows", sequences(generator, [0, 17, 40, 300], **shape)),
        dtype=torch.bfloat16,
        formats={"kv": packed_rows, **({"entries": packed_rows} if shape["m"] else {})},
        keep=("sinks",),
        calls=lambda: ops.calls["patch.splitk_decode"],
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_decode_beside_prefill(examination: Examination, layout: str) -> None:
    """Each row of a mixed batch is its own token's: decode before, between and after prefill."""
    ops, generator = bound(examination), examination.generator()
    shape: dict[str, Any] = {"heads": HEADS, "dim": DIM, "window": WINDOW, **LAYOUTS[layout]}
    examination.patch(
        mixed_attention(ops.sparse_attention),
        token_by_token(plain_bf16),
        token_by_token(true_sequences),
        Case(f"{layout}, mixed batch", mixed(generator, [150, 40, 5, 300, 99, 64], **shape)),
        dtype=torch.bfloat16,
        formats={name: f for name, f in FORMATS.items() if name != "entries" or shape["m"]},
        keep=("sinks",),
        calls=lambda: ops.calls["patch.splitk_decode"],
    )


@pytest.mark.parametrize("selected", [True, False])
def test_shapes_of_the_large_model(examination: Examination, *, selected: bool) -> None:
    """64 heads of 512 channels; 10, 18 and 19 splits."""
    ops = bound(examination)
    examination.patch(
        paged_attention(ops.sparse_attention),
        plain_bf16,
        true_sequences,
        flash_shapes.decode_cases(examination.generator(), selected=selected),
        dtype=torch.bfloat16,
        formats=FORMATS,
        keep=("sinks",),
        calls=lambda: ops.calls["patch.splitk_decode"],
    )


@given(
    positions=st.lists(st.integers(0, 200), min_size=1, max_size=4),
    heads=st.integers(1, 20),
    dim=st.integers(1, 70),
    window=st.integers(1, 90),
    m=st.sampled_from([None, 1, 4, 16]),
    topk=st.integers(0, 40),
)
def test_irregular_shapes(
    examination: Examination,
    positions: list[int],
    heads: int,
    dim: int,
    window: int,
    m: int | None,
    topk: int,
) -> None:
    """Any lengths, heads, channels, window, rate and number of entries, in bf16."""
    arguments = sequences(
        examination.generator(), positions, heads=heads, dim=dim, m=m, topk=topk, window=window
    )
    examination.patch(
        paged_attention(bound(examination).sparse_attention),
        plain_bf16,
        true_sequences,
        Case(f"positions {positions}, {heads} x {dim}, window {window}, m {m}", arguments),
        dtype=torch.bfloat16,
        keep=("sinks",),
        must_differ=False,
    )


def test_compounding(examination: Examination) -> None:
    """21, 43 and 61 layers of decode attention: near the format's maths, and no growth."""
    generator = examination.generator()
    tokens, heads, dim, length = 12, 2, 32, 90
    hidden = heads * dim
    rows = [normal(generator, tokens, length, dim) for _ in range(61)]
    project = [normal(generator, hidden, hidden) * hidden**-0.5 for _ in range(61)]
    positions = torch.full((tokens,), length - 1)

    def step(op: Op, x: Tensor, layer: int) -> Tensor:
        q = (rms(x) @ project[layer].to(x.device)).view(tokens, heads, dim) * 3
        made = op(
            q=q,
            kv=rows[layer].to(x.device),
            entries=None,
            selected=None,
            sinks=torch.zeros(heads, device=x.device),
            positions=positions.to(x.device),
            window=length,
            m=None,
            scale=dim**-0.5,
        )
        return x + 0.15 * rms(made.flatten(1))

    stack = Stack(
        step=step, start=normal(generator, tokens, hidden), head=head(generator, 256, hidden)
    )
    formats = {"q": bf16, "kv": bf16}
    examination.compounding(
        paged_attention(bound(examination).sparse_attention),
        true_sequences,
        stack,
        declared=declared(
            true_sequences, plain_bf16, formats=formats, dtype=torch.bfloat16, keep=("sinks",)
        ),
    )


def test_whole_model(examination: Examination) -> None:
    """All attention of a checkpoint as if each token were decoded: KL at the logits."""
    op = on_cpu(examination, paged_attention(bound(examination).sparse_attention))
    examination.whole_model(sparse_attention=decoded(op))


def test_harvested_rows(harvested: Examination, harvest: Harvest) -> None:
    """Queries, window rows, entries and selections of a running engine; its text at the logits."""
    ops, opening = bound(harvested, settings=settings_of(harvest)), harvest.opening()
    op = paged_attention(ops.sparse_attention)
    for compressed in (False, True):
        cases = decode_cases(harvest, compressed=compressed)
        if cases:
            harvested.patch(
                op,
                plain_bf16,
                true_sequences,
                cases,
                dtype=torch.bfloat16,
                formats={name: f for name, f in FORMATS.items() if name != "entries" or compressed},
                keep=("sinks",),
                calls=lambda: ops.calls["patch.splitk_decode"],
            )
    harvested.whole_model(opening, sparse_attention=decoded(on_cpu(harvested, op)))


def decoded(op: Op) -> Op:
    """The op in the place of the reference's, as if each token were decoded."""

    def attention(
        q: Tensor,
        kv: Tensor,
        entries: Tensor | None,
        selected: Tensor | None,
        sinks: Tensor,
        *,
        positions: Tensor,
        **options: object,
    ) -> Tensor:
        made = []
        for t in range(0, len(q), 50):  # each token is a sequence of its own with the same rows
            part = slice(t, t + 50)
            count = len(q[part])
            made.append(
                op(
                    q[part],
                    kv.expand(count, -1, -1),
                    None if entries is None else entries.expand(count, -1, -1),
                    None if selected is None else selected[part],
                    sinks,
                    positions[part],
                    **options,
                )
            )
        return torch.cat(made)

    return attention


def test_it_runs_only_where_it_is_on(examination: Examination) -> None:
    """Its counter moves with the patch on, and there is none with it off."""
    examination.ran(bound(examination), bound_without(examination), "sparse_attention")
