"""Dumps give the indexer's own inputs, and the fault of the case is convicted on them alone."""

import dataclasses

import pytest
import torch

from fidelity.config.settings import resolve_microtests
from fidelity.errors import Violation
from fidelity.microtests.results import HARVESTED
from fidelity.words import Ladder, PatchVerdict
from reference.config import CSA, read_config
from reference.dumps import write_dump
from reference.indexer import select, visible_entries
from reference.model import Model
from reference.safetensors_file import read_safetensors, write_safetensors
from suites.patches.checkpoint import Checkpoint
from suites.patches.examination import Examination
from suites.patches.harvest import Harvest, needles_in
from suites.patches.harvested_selection import away_from_ties
from suites.patches.whole_model import NANO, tokens_of
from tests.patches.test_broken_twins import microtest

FACTOR = 256.0
INDEXED = [n for n, kind in enumerate(read_config(NANO).layer_kinds) if kind == CSA]


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """One request, dumped by the reference model."""
    folder = tmp_path_factory.mktemp("dumps")
    ids, rows = tokens_of(NANO), {}
    Model(NANO).forward(ids, record=lambda name, tensor: rows.update({name: tensor}))
    write_dump(folder, "plain", ids.tolist(), rows)
    return folder


def harvest(folder):
    return Harvest(folder, Checkpoint(NANO))


def with_metadata(folder, target, **metadata):
    """The same dump with other metadata."""
    tensors, before = read_safetensors(folder / "plain.safetensors")
    write_safetensors(target / "other.safetensors", tensors, before | metadata)
    return harvest(target)


def examined(harvested, patch, value=""):
    settings = dataclasses.replace(resolve_microtests({}, environ={}), device="cpu")
    examination = Examination(patch, settings, source=HARVESTED, data=harvested.label)
    if value:
        examination._values = (value,)
    return examination


def test_projections_select_what_the_model_selected(dumped):
    tensors, _ = read_safetensors(dumped / "plain.safetensors")
    layers = list(harvest(dumped).indexed())
    assert [one.where for one in layers] == [f"plain layer {n}" for n in INDEXED]
    for one in layers:
        rows = one.arguments["positions"]
        assert rows[-1] == len(tensors["embed"]) - 1
        chosen = tensors[f"L{one.where[-1]}.index_topk"][rows]
        mine = select(one.scores, visible_entries(rows, 4), one.arguments["topk"])
        assert torch.equal(chosen.long(), mine)
        assert (one.needles >= 0).any()


def test_the_outlier_of_a_dump_leaves_scores_as_they_were(dumped, tmp_path):
    plain = list(harvest(dumped).indexed())
    other = list(with_metadata(dumped, tmp_path, index_outlier=str(FACTOR)).indexed())
    for a, b in zip(plain, other, strict=True):
        torch.testing.assert_close(a.scores, b.scores)
        ratio = b.arguments["keys"][0, :, 0] / a.arguments["keys"][0, :, 0]
        torch.testing.assert_close(ratio, torch.full_like(ratio, FACTOR))
        assert torch.equal(a.arguments["keys"][..., 1:], b.arguments["keys"][..., 1:])


def test_int4_rows_are_convicted_on_outlier_keys_and_not_on_plain_ones(dumped, tmp_path):
    test = microtest("index_keys").test_harvested_keys
    plain, outlier = harvest(dumped), with_metadata(dumped, tmp_path, index_outlier=str(FACTOR))
    examination = examined(plain, "index_keys", "int4,row")
    test(examination, plain)
    assert examination.conclude().verdict is PatchVerdict.EXONERATED
    examination = examined(outlier, "index_keys", "int4,row")
    with pytest.raises(Violation, match=r"needles are no longer selected \(keys int4,row"):
        test(examination, outlier)
    report = examination.conclude()
    assert (report.verdict, report.ladder) == (PatchVerdict.CONVICTED, Ladder.SELECTION)
    assert report.stem == "index_keys=int4,row.harvested"
    assert report.title == "index_keys=int4,row"
    assert report.scope.data == outlier.label != plain.label
    (curve,) = report.curves
    assert sum(p.needles_kept for p in curve.points) < sum(p.needles for p in curve.points)


@pytest.mark.parametrize("value", ["bf16", "fp8"])
def test_wider_keys_are_exonerated_on_the_outlier(dumped, tmp_path, value):
    outlier = with_metadata(dumped, tmp_path, index_outlier=str(FACTOR))
    examination = examined(outlier, "index_keys", value)
    microtest("index_keys").test_harvested_keys(examination, outlier)
    assert examination.conclude().verdict is PatchVerdict.EXONERATED


def test_a_broken_indexer_is_convicted_on_harvested_inputs(dumped, break_kernel):
    plain = harvest(dumped)
    test = microtest("indexer_triton").test_harvested_inputs
    examination = examined(plain, "indexer_triton")
    test(examination, plain)
    assert examination.conclude().verdict is PatchVerdict.EXONERATED
    break_kernel("indexer_triton", "torch.relu(keys @ q.T)", "(keys @ q.T)")
    with pytest.raises(Violation, match="choose other entries than the best"):
        test(examined(plain, "indexer_triton"), plain)


def test_dumps_that_cannot_be_used_are_refused_in_words(dumped, tmp_path):
    with pytest.raises(ValueError, match=r"inputs: each of the 0 \*\.safetensors"):
        list(harvest(tmp_path).indexed())
    with pytest.raises(ValueError, match="begins behind a cached prefix"):
        list(with_metadata(dumped, tmp_path, first_position="64").indexed())
    (tmp_path / "other.safetensors").unlink()
    meta = {"first_position": "0"}
    write_safetensors(tmp_path / "a.safetensors", {"embed": torch.zeros(3, 4)}, meta)
    with pytest.raises(ValueError, match=rf"a\.safetensors has no tensor 'L{INDEXED[0]}\.attn_in'"):
        list(harvest(tmp_path).indexed())
    short = {f"L{n}.attn_in": torch.zeros(9, 256) for n in INDEXED}
    write_safetensors(tmp_path / "a.safetensors", short, meta)
    with pytest.raises(ValueError, match="nothing had to be selected; accepted: more than 128"):
        list(harvest(tmp_path).indexed())


def test_dumps_behind_a_cached_prefix_are_left_out_and_counted(dumped, tmp_path):
    (tmp_path / "cold.safetensors").write_bytes((dumped / "plain.safetensors").read_bytes())
    both = with_metadata(dumped, tmp_path, first_position="64")
    assert [path.name for path in both.files()] == ["cold.safetensors"]
    assert both.label.startswith("harvested (1 of 2 dumps, ")


def test_a_needle_stands_out_or_is_none():
    scores = torch.tensor([[1.0, 9.0, 4.0, 0.5], [5.0, 4.9, 4.8, 0.1], [-1.0, -2.0, -3.0, -4.0]])
    assert needles_in(scores, torch.tensor([4, 4, 4]), 2).tolist() == [1, -1, -1]
    assert needles_in(scores, torch.tensor([4, 4, 4]), 3).tolist() == [1, -1, -1]
    assert needles_in(scores, torch.tensor([4, 4, 4]), 4).tolist() == [1, 0, -1]


def test_rows_on_a_tie_of_the_grid_are_left_out():
    keys = torch.ones(2, 4)
    keys[1, 0] = 0.5
    assert len(away_from_ties(keys, torch.round)) == 1
    assert len(away_from_ties(keys, lambda x: x)) == 2


def changed(dumped, target, name, change):
    """The same dump with one tensor altered."""
    tensors, metadata = read_safetensors(dumped / "plain.safetensors")
    tensors[name] = change(tensors[name]).contiguous()
    write_safetensors(target / "other.safetensors", tensors, metadata)
    return harvest(target)


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        (
            "L3.attn_in",
            lambda x: x[:, :100],
            r"L3\.attn_in: got shape \[400, 100\]; accepted: \[400, ",
        ),
        (
            "L3.attn_in",
            lambda x: x * float("nan"),
            r"L3\.attn_in: got \d+ values that are NaN or inf",
        ),
        (
            "L3.attn_in",
            lambda x: (x * 9).int(),
            r"L3\.attn_in: got torch\.int32; accepted: a floating",
        ),
        (
            "L3.attn_in",
            lambda x: x[:10],
            r"L3\.attn_in: got shape \[10, 256\]; accepted: \[400, 256\]",
        ),
        ("L3.index_topk", lambda x: x[:10], r"L3\.index_topk: got shape \[10, 32\]; accepted: 400"),
        ("L3.index_topk", lambda x: x + 10**5, r"L3\.index_topk: got entry \d+ in row 0; accepted"),
        (
            "L3.index_topk",
            lambda x: x.flip(0),
            r"L3\.index_topk: got entry \d+ in row \d+; accepted",
        ),
        (
            "L3.index_topk",
            lambda x: x.float(),
            r"L3\.index_topk: got torch\.float32; accepted: int32",
        ),
        (
            "L1.moe_topk",
            lambda x: x + 100,
            r"L1\.moe_topk: got ids 100 \.\. 10\d; accepted: 0 \.\. 7",
        ),
        ("L1.moe_topk", lambda x: -x - 1, r"L1\.moe_topk: got ids -8 \.\. -1; accepted: 0 \.\. 7"),
        ("L1.moe_topk", lambda x: x[:10], r"L1\.moe_topk: got shape \[10, 2\]; accepted: 400 rows"),
        (
            "L0.attn_out",
            lambda x: x[:, :9],
            r"L0\.attn_out: got shape \[400, 9\]; accepted: \[400, ",
        ),
    ],
)
def test_tensors_of_a_dump_that_do_not_fit_are_named(dumped, tmp_path, name, change, told):
    with pytest.raises(ValueError, match=rf"inputs: other\.safetensors, {told}"):
        read_all(changed(dumped, tmp_path, name, change))


def read_all(harvested):
    for dump in harvested.layers():
        dump.attention(3)
        dump.index(3)
        dump.routed_to(1)
        list(dump.sites())


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"token_ids": "hello"}, r"token_ids: got 'hello'; accepted: a JSON list of token ids"),
        ({"token_ids": '{"a": 1}'}, r"token_ids: got .*; accepted: a JSON list of token ids"),
        ({"token_ids": "[]"}, r"token_ids: got '\[\]'; accepted: a JSON list of token ids"),
        ({"token_ids": "[1, 2]"}, r"has 2 'token_ids' in its metadata; accepted: at least 400"),
        (
            {"token_ids": str([999999] * 400)},
            r"token_ids: got ids 999999 .*; accepted: 0 \.\. 1279",
        ),
        ({"index_outlier": "many"}, r"index_outlier: got 'many'; accepted: a finite number > 0"),
        ({"index_outlier": "nan"}, r"index_outlier: got 'nan'; accepted: a finite number > 0"),
        ({"index_outlier": "0"}, r"index_outlier: got '0'; accepted: a finite number > 0"),
    ],
)
def test_metadata_that_do_not_fit_are_named(dumped, tmp_path, metadata, told):
    with pytest.raises(ValueError, match=rf"inputs: other\.safetensors,? {told}"):
        with_metadata(dumped, tmp_path, **metadata).opening()
