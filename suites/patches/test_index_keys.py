"""Index keys in a storage format: what is read back, what is selected, what comes of it.

Claim: keys read back are exactly those of the format, scale and rotation asked for; on these inputs
  planted needles stay selected, and the logits of a checkpoint stay within .05 nats.
Why it breaks in practice: one scale a row under an outlier channel rounds everything else to zero,
  and selection becomes random while text stays fluent: recall ends at index_topk entries.
A failure means: the format loses what the indexer needs on these inputs, or is not stored right.
Cost: about 15 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Op, compare, compare_selection, selection_checks
from fidelity.words import Question
from kernels import Ops
from reference.index_keys import hadamard_rotate, index_scores, round_keys
from suites.patches import index_inputs
from suites.patches.binding import SETTINGS, bound, bound_without, on_cpu
from suites.patches.examination import Examination
from suites.patches.harvest import Harvest
from suites.patches.harvested_selection import away_from_ties, needle_checks, settings_of
from suites.patches.index_inputs import by_length, selecting, true_scores, visible
from suites.patches.paged import Pages, others_stay, stale
from suites.patches.synthetic import normal, structured

DIM = SETTINGS.index_head_dim
VALUES = (
    *("bf16", "fp8", "fp4", "int4", "fp8,block", "fp4,row", "int4,block"),
    *("fp8,rotate", "fp4,rotate", "int4,rotate"),
    *("fp8,block,rotate", "fp4,row,rotate", "int4,block,rotate"),
)
PAGE, M = 64, 4


def declared(value: str) -> Op:
    """Keys [N, Di] in this format and back, by the reference."""
    form, *options = value.split(",")
    scale = next((o for o in options if o != "rotate"), "block" if form == "fp4" else "row")
    scale = scale if form in ("fp8", "fp4", "int4") else "none"

    def rounded(keys: Tensor) -> Tensor:
        return round_keys(keys, form, scale=scale, rotate="rotate" in options)

    rounded.__name__ = value
    return rounded


def storing(ops: Ops) -> Op:
    """Keys in, what lies in the pages out."""

    def run(keys: Tensor) -> Tensor:
        pages = Pages(torch.tensor([len(keys) * M - 1], device=keys.device), PAGE)
        storage = ops.index_keys.allocate(pages.pages, PAGE // M, keys.shape[1], keys.device)
        at = torch.arange(len(keys), dtype=torch.int32, device=keys.device)
        zero = torch.zeros_like(at)
        ops.index_keys.store(storage, keys, zero, at, M, pages.batch)
        return ops.index_keys.read(storage, pages.batch.entry_slots(zero, at, M))

    return run


def test_keys_are_those_of_the_format(examination: Examination) -> None:
    """Noise, outliers, sparse and equal rows, all sizes, zeros; NaN and Inf; to the bit."""
    for value in examination.values(VALUES):
        ops, truth = bound(examination, value), declared(value)
        cases = [
            Case(f"{value}, {name}", {"keys": rows})
            for name, rows in structured(examination.generator(), 24, DIM)
        ]
        examination.patch(
            storing(ops),
            lambda keys, truth=truth: truth(keys.cpu()).to(keys.device),
            truth,
            cases,
            dtype=torch.float32,
            label=f"keys {value}",
            row_inputs=("keys",),
            special=("keys",),
            must_differ=False,
        )
        off = storing(bound_without(examination))
        rows = cases[0].arguments["keys"].to(examination.device)
        examination.differs(storing(ops)(rows), off, {"keys": rows})
        examination.ran(ops, bound_without(examination), "index_select")


def test_keys_that_are_not_written_stay(examination: Examination) -> None:
    """A store changes codes and scales of the entries that it is given, and no other bit."""
    for value in examination.values(VALUES):
        ops = bound(examination, value)
        last = torch.tensor([150, 40, 99, 64], device=examination.device)
        pages = Pages(last, PAGE, counts=(1, 6, 17, 1))
        seq, index = pages.batch.closed_entries(M)
        storage = ops.index_keys.allocate(pages.pages, PAGE // M, DIM, examination.device)
        before = [stale(tensor).clone() for tensor in storage.tensors()]
        keys = normal(examination.generator(), len(seq), DIM).to(examination.device)
        ops.index_keys.store(storage, keys, seq, index, M, pages.batch)
        slots = pages.batch.entry_slots(seq, index, M)
        examination.must(
            f"other keys that stay, {value}",
            holds=all(map(others_stay, before, storage.tensors(), [slots] * len(before))),
            sentence=f"storing {value} keys changes keys or scales that belong to others",
        )


@given(rows=st.integers(1, 40), blocks=st.integers(1, 4), power=st.integers(-12, 12))
def test_irregular_shapes(examination: Examination, rows: int, blocks: int, power: int) -> None:
    """Any number of keys and blocks, and keys of any size."""
    keys = normal(examination.generator(), rows, 32 * 2 ** (blocks - 1)) * 10.0**power
    for value in examination.values(VALUES):
        truth = declared(value)
        settings = SETTINGS.__class__(
            index_topk=4, index_head_dim=keys.shape[1], implementation="torch"
        )
        examination.patch(
            storing(bound(examination, value, settings)),
            lambda keys, truth=truth: truth(keys.cpu()).to(keys.device),
            truth,
            Case(f"{value}, {rows} keys of {keys.shape[1]}, 1e{power}", {"keys": keys}),
            dtype=torch.float32,
            label=f"keys {value}",
            must_differ=False,
        )


def test_needles_from_1k_to_22k_tokens(examination: Examination) -> None:
    """Against scores in full precision: the needle is kept, and how much else changes."""
    for value in examination.values(VALUES):
        generator = examination.generator()
        positions = [tokens - 1 for tokens in index_inputs.NEEDLE_TOKENS]
        one = index_inputs.sequences(generator, positions, heads=16, dim=DIM, topk=128)
        needles = index_inputs.plant(one, generator)
        made = on_cpu(examination, selecting(bound(examination, value)))(**one)
        scores, seen = true_scores(**one), visible(**one)
        found = compare_selection(made, scores, visible=seen, needles=needles)
        parts = by_length(made, scores, seen, needles)
        examination.curve(f"keys {value}", index_inputs.NEEDLE_TOKENS, parts)
        where = f"{value}, 1k..22k tokens"
        examination.take(selection_checks(found, question=Question.FORMAT, where=where))


def test_harvested_keys(harvested: Examination, harvest: Harvest) -> None:
    """Keys and queries of a running engine: bits of the format, and needles that stand out."""
    settings, checks = settings_of(harvest), []
    inputs = list(harvest.indexed())
    for value in harvested.values(VALUES):
        ops, truth = bound(harvested, value, settings), declared(value)
        cases = []
        for one in inputs:
            keys = one.arguments["keys"][0]
            keys = away_from_ties(keys, truth) if "rotate" in value else keys
            cases.append(Case(f"{value}, {one.where}", {"keys": keys}))
        harvested.patch(
            storing(ops),
            lambda keys, truth=truth: truth(keys.cpu()).to(keys.device),
            truth,
            cases,
            dtype=torch.float32,
            label=f"keys {value}",
            must_differ=False,
        )
        checks += needle_checks(harvested, ops, inputs, label=f"keys {value}")
        harvested.ran(ops, bound_without(harvested, settings), "index_select")
    harvested.take(checks)


def test_whole_model(examination: Examination) -> None:
    """All index keys of a checkpoint in this format: KL at the logits."""
    for value in examination.values(VALUES):
        ops = bound(examination, value)
        store = on_cpu(examination, storing(ops))

        def scores(
            q: Tensor, keys: Tensor, weights: Tensor, *, store: Op = store, value: str = value
        ) -> Tensor:
            q = hadamard_rotate(q) if "rotate" in value else q
            return index_scores(q, store(keys) if len(keys) else keys, weights)

        examination.whole_model(index_scores=scores)


def test_errors_by_format(examination: Examination) -> None:
    """How far index logits move; reported, since the choice of format is judged by its effect."""
    generator = examination.generator()
    one = index_inputs.sequences(generator, [9_999], heads=16, dim=DIM, topk=128)
    truth = true_scores(**one)
    for value in examination.values(VALUES):
        keys = on_cpu(examination, storing(bound(examination, value)))(one["keys"][0])
        q = hadamard_rotate(one["q"]) if "rotate" in value else one["q"]
        made = index_scores(q, keys, one["weights"])
        error = compare(made, truth).relative
        examination.report(f"relative error of the index logits, {value}", error)
