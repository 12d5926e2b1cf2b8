"""Decode scores of the entries that there are, and the best of them.

Claim: the selected entries are the best by the scores of the declared key format, outside ties, at
  every length and format; no entry beyond a sequence's own length is scored; needles stay selected.
Why it breaks in practice: scores run to the longest sequence or the model's limit and stale pages
  win, the last block of entries is dropped, ties depend on the row's length.
A failure means: a decoded token reads other entries than it should, and forgets what they hold.
Cost: about 15 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Op, Selects, Stack, compare, compare_selection, selection_checks
from fidelity.words import Question
from reference.index_keys import round_keys
from suites.patches import flash_shapes, index_inputs
from suites.patches.binding import SETTINGS, bound, bound_without, on_cpu
from suites.patches.declared import declared
from suites.patches.examination import Examination
from suites.patches.harvest import Harvest
from suites.patches.harvested_selection import needle_checks, settings_of
from suites.patches.index_inputs import (
    M,
    by_length,
    mixed,
    selecting,
    selecting_mixed,
    token_by_token,
    true_scores,
    true_selection,
    visible,
    visible_mixed,
    with_key_of,
)
from suites.patches.synthetic import bf16, head, normal, rms

DIM = SETTINGS.index_head_dim
FORMATS = ("fp32", "bf16", "fp8", "fp8,block", "fp4", "fp4,row", "int4", "int4,block")
SELECTS = Selects(scores=true_scores, visible=visible)


def keys_in(text: str) -> Op:
    """Keys [B, E, Di] as this format brings them into the product, and back."""
    form, _, scale = text.partition(",")
    scaled = form in ("fp8", "fp4", "int4")
    scale = scale or (("block" if form == "fp4" else "row") if scaled else "none")

    def rounded(keys: Tensor) -> Tensor:
        made = round_keys(keys.flatten(0, 1), form, scale=scale).view(keys.shape)
        return made if scale == "row" else bf16(made)

    rounded.__name__ = text
    return rounded


@pytest.mark.parametrize("text", FORMATS)
def test_every_key_format(examination: Examination, text: str) -> None:
    """Lengths around blocks and pages, side by side; pages of nobody hold huge values; NaN, Inf."""
    beside = (f"index_keys={text}",)
    ops, generator = bound(examination, beside=beside), examination.generator()
    cases = [
        Case(
            f"{text}, {name}",
            index_inputs.sequences(generator, positions, heads=7, dim=DIM, topk=9),
        )
        for name, positions in (
            ("short", [0, 2, 3, 4, 35, 36]),
            ("around blocks", [251, 255, 256, 259, 511]),
            ("long beside short", [1_600, 4]),
        )
    ]
    cases += [
        Case(f"{text}, {value} in a key", with_key_of(cases[1].arguments, value))
        for value in (float("nan"), float("inf"), float("-inf"))
    ]
    examination.patch(
        selecting(ops),
        selecting(bound_without(examination, beside=beside)),
        true_selection,
        cases,
        dtype=torch.float32,
        formats={"q": bf16, "keys": keys_in(text)},
        selects=SELECTS,
        must_differ=False,
        calls=lambda: ops.calls["patch.indexer_triton"],
    )


def test_decode_beside_prefill(examination: Examination) -> None:
    """Each row of a mixed batch is its own token's: decode before, between and after prefill."""
    ops, generator = bound(examination), examination.generator()
    examination.patch(
        selecting_mixed(ops),
        selecting_mixed(bound_without(examination)),
        token_by_token(true_selection),
        Case(
            "mixed batch",
            mixed(generator, [600, 90, 35, 255, 400, 1_200], heads=7, dim=DIM, topk=9),
        ),
        dtype=torch.float32,
        formats={"q": bf16, "keys": bf16},
        selects=Selects(scores=token_by_token(true_scores), visible=visible_mixed),
        must_differ=False,
        calls=lambda: ops.calls["patch.indexer_triton"],
    )


@pytest.mark.parametrize("text", ["bf16", "fp8", "fp4"])
def test_shapes_of_the_large_model(examination: Examination, text: str) -> None:
    """64 heads of 128 channels, 512 of thousands of entries; keys as public stacks keep them."""
    beside, settings = (f"index_keys={text}",), flash_shapes.SETTINGS
    ops = bound(examination, settings=settings, beside=beside)
    examination.patch(
        selecting(ops),
        selecting(bound_without(examination, settings, beside)),
        true_selection,
        flash_shapes.index_case(examination.generator()),
        dtype=torch.float32,
        formats={"q": bf16, "keys": keys_in(text)},
        selects=SELECTS,
        must_differ=False,
        calls=lambda: ops.calls["patch.indexer_triton"],
    )


def test_ties_follow_the_total_order(examination: Examination) -> None:
    """Equal scores: the lowest entry first, whatever the length of the row."""
    generator = examination.generator()
    one = index_inputs.sequences(generator, [99, 399, 801], heads=3, dim=DIM, topk=17)
    one["keys"][:, 1::2] = one["keys"][:, :1]
    made = on_cpu(examination, selecting(bound(examination)))(**one)
    declared = {**one, "q": bf16(one["q"]), "keys": bf16(one["keys"])}
    same = bool(torch.equal(made, true_selection(**declared)))
    examination.must(
        "ties in another order",
        holds=same,
        sentence="equal scores are not taken in the order of their entries",
    )


@given(
    positions=st.lists(st.integers(0, 700), min_size=1, max_size=4),
    heads=st.integers(1, 20),
    topk=st.integers(1, 200),
)
def test_irregular_shapes(
    examination: Examination, positions: list[int], heads: int, topk: int
) -> None:
    """Any lengths and heads, and any number of entries to select."""
    arguments = index_inputs.sequences(
        examination.generator(), positions, heads=heads, dim=DIM, topk=topk
    )
    examination.patch(
        selecting(bound(examination)),
        selecting(bound_without(examination)),
        true_selection,
        Case(f"positions {positions}, {heads} heads, {topk} entries", arguments),
        dtype=torch.float32,
        formats={"q": bf16, "keys": bf16},
        selects=SELECTS,
        must_differ=False,
    )


def test_needles_from_1k_to_22k_tokens(examination: Examination) -> None:
    """Against scores in full precision: the needle is kept, and how much else changes."""
    generator = examination.generator()
    positions = [tokens - 1 for tokens in index_inputs.NEEDLE_TOKENS]
    one = index_inputs.sequences(generator, positions, heads=16, dim=DIM, topk=128)
    needles = index_inputs.plant(one, generator)
    made = on_cpu(examination, selecting(bound(examination)))(**one)
    scores = true_scores(**one)
    seen = visible(**one)
    found = compare_selection(made, scores, visible=seen, needles=needles)
    parts = by_length(made, scores, seen, needles)
    examination.curve("queries and keys in bf16", index_inputs.NEEDLE_TOKENS, parts)
    examination.take(selection_checks(found, question=Question.FORMAT, where="1k..22k tokens"))
    declared = {**one, "q": bf16(one["q"]), "keys": bf16(one["keys"])}
    error = compare(true_scores(**declared), scores)
    examination.report("relative error of the index logits", error.relative)
    examination.differs(made, selecting(bound_without(examination)), one)


def test_harvested_inputs(harvested: Examination, harvest: Harvest) -> None:
    """Queries and keys of a running engine: the best of the declared scores, and needles."""
    settings = settings_of(harvest)
    ops, off = bound(harvested, settings=settings), bound_without(harvested, settings)
    inputs = list(harvest.indexed())
    harvested.patch(
        selecting(ops),
        selecting(off),
        true_selection,
        [Case(one.where, one.arguments) for one in inputs],
        dtype=torch.float32,
        formats={"q": bf16, "keys": bf16},
        selects=SELECTS,
        must_differ=False,
        calls=lambda: ops.calls["patch.indexer_triton"],
    )
    harvested.take(needle_checks(harvested, ops, inputs, label="queries and keys in bf16"))


def test_compounding(examination: Examination) -> None:
    """21, 43 and 61 layers that read what was selected: as the declared keys say, no growth."""
    generator = examination.generator()
    tokens, heads, entries, topk = 6, 8, 160, 32
    hidden = heads * DIM
    keys = [normal(generator, tokens, entries, DIM) for _ in range(61)]
    values = [normal(generator, entries, hidden) for _ in range(61)]
    weights = normal(generator, tokens, heads).abs() * (heads * DIM) ** -0.5
    positions = torch.full((tokens,), entries * M - 1)

    def step(op: Op, x: Tensor, layer: int) -> Tensor:
        q = rms(x).view(tokens, heads, DIM)
        chosen = op(
            q=q, keys=keys[layer].to(x.device), weights=weights.to(x.device),
            positions=positions.to(x.device), topk=topk,
        ).long()  # fmt: skip
        read = values[layer].to(x.device)[chosen.clamp(min=0)].mean(1)
        return x + 0.15 * rms(read)

    stack = Stack(
        step=step, start=normal(generator, tokens, hidden), head=head(generator, 256, hidden)
    )
    plain = selecting(bound_without(examination))
    examination.compounding(
        selecting(bound(examination)),
        true_selection,
        stack,
        declared=declared(true_selection, plain, formats={"q": bf16, "keys": bf16}),
    )


def test_whole_model(examination: Examination) -> None:
    """All selection of a checkpoint as if each token were decoded: KL at the logits."""
    op = on_cpu(examination, selecting(bound(examination)))
    held: dict[str, Tensor] = {}

    def index_scores(q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        held.update(q=q, keys=keys, weights=weights)
        return q.new_zeros(len(q), len(keys))

    def chosen(scores: Tensor, seen: Tensor, topk: int) -> Tensor:
        del scores
        made = []
        for t in range(0, len(seen), 50):  # each token is a sequence with the same entries
            part = slice(t, t + 50)
            keys = held["keys"].expand(len(seen[part]), -1, -1)
            positions = torch.arange(len(seen))[part]
            made.append(op(held["q"][part], keys, held["weights"][part], positions, topk))
        return torch.cat(made)

    examination.whole_model(index_scores=index_scores, select=chosen)


def test_it_runs_only_where_it_is_on(examination: Examination) -> None:
    """Its counter moves with the patch on, and there is none with it off."""
    examination.ran(bound(examination), bound_without(examination), "index_select")
