"""Each microtest convicts kernels that were broken on purpose, and says so in words."""

import dataclasses
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import kernels.ops
from fidelity.errors import Violation
from fidelity.words import PatchVerdict
from suites.patches import binding

SUITES = Path(__file__).parents[2] / "suites" / "patches"


class Twin(NamedTuple):
    """One broken kernel: what is replaced in its source, and a test that must see it."""

    patch: str
    fault: str
    old: str
    new: str
    test: str
    arguments: tuple = ()
    file: str = ""
    options: dict = {}  # noqa: RUF012 - read only


TWINS = [
    Twin("mhc_bf16", "the last channels are dropped", "range(0, n * hidden, BLOCK_K)",
         "range(0, n * hidden - BLOCK_K, BLOCK_K)", "test_synthetic_streams", (torch.float32,)),
    Twin("mhc_bf16", "the tail block is dropped", "range(0, n * hidden, BLOCK_K)",
         "range(0, n * hidden // BLOCK_K * BLOCK_K, BLOCK_K)", "test_irregular_shapes"),
    Twin("mhc_bf16", "comb is transposed", "return y, post, comb",
         "return y, post, comb.transpose(1, 2).contiguous()", "test_synthetic_streams",
         (torch.bfloat16,)),
    Twin("mhc_bf16", "one Sinkhorn iteration less", "eps=hc_eps, iters=iters)",
         "eps=hc_eps, iters=max(1, iters - 1))",
         "test_irregular_shapes"),
    Twin("mhc_bf16", "the RMS norm misses its epsilon's place", "+ rms_eps)[:, None]",
         ")[:, None] + rms_eps", "test_synthetic_streams", (torch.float32,)),
    Twin("moe_routed_scaling", "the factor is applied twice", "(scaling / (",
         "(scaling * scaling / (", "test_learned_routing", (torch.float32,)),
    Twin("moe_routed_scaling", "the bias leaks into the weights", "scores.gather(1, ids)",
         "(scores if bias is None else ranked).gather(1, ids)", "test_learned_routing",
         (torch.bfloat16,)),
    Twin("moe_routed_scaling", "hash layers are not scaled", "ids.int(), chosen * (scaling",
         "ids.int(), chosen * ((scaling if bias is not None else 1.0)", "test_hash_routing",
         (torch.float32,)),
    Twin("moe_routed_scaling", "two experts change places and leave their weights",
         "return ids.int(), chosen *",
         "order = [0, 2, 1, *range(3, ids.shape[1])][: ids.shape[1]]\n"
         "    ids = ids[:, order] if ids.shape[1] > 2 else ids\n    return ids.int(), chosen *",
         "test_learned_routing", (torch.bfloat16,)),
    Twin("moe_routed_scaling", "experts of a hash layer come back in reverse",
         "return ids.int(), chosen *", "return ids.int().flip(1), chosen *", "test_hash_routing",
         (torch.float32,)),
    Twin("moe_routed_scaling", "pairs of few experts are parted", "return ids.int(), chosen *",
         "return ids.int().flip(1), chosen *", "test_irregular_shapes"),
    Twin("moe_routed_scaling", "a NaN score ranks last and plausible experts come out",
         'nan=float("inf"), posinf', 'nan=float("-inf"), posinf', "test_learned_routing",
         (torch.float32,)),
    Twin("swiglu_clamp", "the shared expert hides NaN", "    if scale is not None:\n        made =",
         "    if scale is None:\n        made = made.nan_to_num()\n    else:\n        made =",
         "test_shared_expert", (torch.float32,)),
    Twin("moe_routed_scaling", "the bias is left out of the choice", "else scores + bias",
         "else scores", "test_irregular_shapes"),
    Twin("swiglu_clamp", "the clamp is missing", "if limit is not None and limit > 0:", "if False:",
         "test_shared_expert", (torch.bfloat16,)),
    Twin("swiglu_clamp", "the gate is clamped from below too", "g.clamp(max=limit)",
         "g.clamp(min=-limit / 20, max=limit)", "test_routed_experts", (torch.float32,)),
    Twin("swiglu_clamp", "the clamp hides NaN", "g / (1", "g.nan_to_num() / (1",
         "test_routed_experts", (torch.float32,)),
    Twin("swiglu_clamp", "the routing weight enters twice", "made * scale.float()[:, None]",
         "made * scale.float()[:, None].square()", "test_irregular_shapes"),
    Twin("mxfp4_experts", "nibbles are read in the wrong order",
         "torch.stack((packed & 15, packed >> 4)", "torch.stack((packed >> 4, packed & 15)",
         "test_structured_inputs", (), "fp4.py"),
    Twin("mxfp4_experts", "a row has one scale where its blocks have their own",
         "groups.abs().amax(-1)\n",
         "groups.abs().amax((-2, -1), keepdim=True)[..., 0].expand(groups.shape[:-1])\n",
         "test_structured_inputs", (), "fp4.py"),
    Twin("mxfp4_experts", "the scale rounds down and values saturate", "(fraction == 0.5).int()",
         "1", "test_irregular_shapes", (), "fp4.py"),
    Twin("nvfp4_experts", "the matrix's factor is left out", "* stored.factors[expert]", "",
         "test_irregular_shapes", (), "fp4.py"),
    Twin("nvfp4_experts", "the block's scale is applied twice",
         "* read_scales(scales)[..., None]).flatten(2)",
         "* read_scales(scales)[..., None].square()).flatten(2)",
         "test_structured_inputs", (), "fp4.py"),
    Twin("splitk_decode", "the last split is dropped", "range(0, rows.shape[1], SPLIT)",
         "range(0, max(SPLIT, rows.shape[1] - SPLIT), SPLIT)", "test_lengths_and_sharpness",
         ("selected entries",)),
    Twin("splitk_decode", "splits are merged without their sums", "top[..., 0] + torch.log(total)",
         "top[..., 0]", "test_lengths_and_sharpness", ("all entries",)),
    Twin("splitk_decode", "the sink counts once a split", "+ torch.exp(sinks - top)",
         "+ len(lse) * torch.exp(sinks - top)", "test_lengths_and_sharpness",
         ("selected entries",)),
    Twin("splitk_decode", "the scale is applied twice", "keys) * scale", "keys) * scale * scale",
         "test_irregular_shapes"),
    Twin("splitk_decode", "rows that are not seen enter as zeros",
         'scores.masked_fill(~seen[:, None], float("-inf"))', "scores", "test_irregular_shapes"),
    Twin("splitk_decode", "rows of a mixed batch come back in reverse", "out[part.tokens] = op(",
         "out[part.tokens.flip(0)] = op(", "test_decode_beside_prefill", ("window alone",)),
    Twin("splitk_decode", "selections of a mixed batch are those of its first rows",
         "selected[part.tokens]", "selected[: len(part.tokens)]", "test_decode_beside_prefill",
         ("selected entries",)),
    Twin("indexer_triton", "rows of a mixed batch come back in reverse", "out[part.tokens] = op(",
         "out[part.tokens.flip(0)] = op(", "test_decode_beside_prefill"),
    Twin("indexer_triton", "the newest entry is seen too late",
         "visible = (batch.positions.long() + 1) // m", "visible = batch.positions.long() // m",
         "test_every_key_format", ("bf16",)),
    Twin("indexer_triton", "scores run to the longest sequence",
         "visible = (batch.positions.long() + 1) // m",
         "visible = ((batch.positions.long() + 1) // m).amax().expand(q.shape[0])",
         "test_every_key_format", ("bf16",)),
    Twin("indexer_triton", "the last entries are not scored", "visible.tolist()",
         "(visible // 8 * 8).tolist()", "test_irregular_shapes"),
    Twin("indexer_triton", "a NaN score wins", "return select_top(scores, visible, topk)",
         "return select_top(scores.nan_to_num(nan=float('inf')), visible, topk)",
         "test_every_key_format", ("fp8",)),
    Twin("indexer_triton", "an infinite score is left out",
         "return select_top(scores, visible, topk)",
         "return select_top(scores.masked_fill(scores == torch.inf, -torch.inf), visible, topk)",
         "test_every_key_format", ("bf16",)),
    Twin("indexer_triton", "a row's scale is left out",
         "made if row_scale is None else made * row_scale", "made", "test_every_key_format",
         ("fp8",)),
    Twin("indexer_triton", "the relu is missing", "torch.relu(keys @ q.T)", "(keys @ q.T)",
         "test_every_key_format",
        ("fp32",)),
    Twin("fp8_kv", "a row has one scale where its blocks have their own",
         "unflatten(1, (-1, block))", "unflatten(1, (1, -1))", "test_rows_are_those_of_the_format"),
    Twin("fp8_kv", "the scale rounds down and values saturate", "(fraction == 0.5).int()", "1",
         "test_irregular_shapes"),
    Twin("fp8_kv", "the rotated tail stays as it is", "rows[:, plain:].bfloat16().float()",
         "rows[:, plain:].float()", "test_rows_are_those_of_the_format"),
    Twin("fp8_kv", "a store erases every other row of the pool",
         "            into.count()\n", "            into.count()\n            pool.zero_()\n",
         "test_rows_that_are_not_written_stay"),
    Twin("fp8_kv", "entries are not rounded", '("store_window", "store_entries")',
         '("store_window",)', "test_attention_reads_what_was_stored"),
    Twin("index_keys", "nibbles are read in the wrong order", "(packed & 15, packed >> 4)",
         "(packed >> 4, packed & 15)", "test_keys_are_those_of_the_format"),
    Twin("index_keys", "a row has one scale where its blocks have their own",
         "groups.abs().amax(-1).clamp",
         "groups.abs().amax((-2, -1), keepdim=True)[..., 0].expand(groups.shape[:-1]).clamp",
         "test_keys_are_those_of_the_format"),
    Twin("index_keys", "a store erases every other key", "        flat[slots] = codes\n",
         "        flat.zero_()\n        flat[slots] = codes\n",
         "test_keys_that_are_not_written_stay"),
    Twin("index_keys", "a store changes every other scale", "        if storage.scales is not None",
         "        if storage.scales is not None:\n            storage.scales.zero_()\n"
         "        if storage.scales is not None",
         "test_keys_that_are_not_written_stay"),
    Twin("index_keys", "fp4 with one scale a row has a quarter of it",
         "return _round_fp4(groups, amax)",
         "return _round_fp4(groups, amax * (0.25 if self.format.scale == 'row' else 1))",
         "test_keys_are_those_of_the_format"),
    Twin("index_keys", "infinite keys change their sign", "return keys.bfloat16(), None",
         "return torch.where(keys.isinf(), -keys, keys).bfloat16(), None",
         "test_keys_are_those_of_the_format"),
    Twin("index_keys", "infinite keys become NaN", "return keys.bfloat16(), None",
         "return keys.masked_fill(keys.isinf(), float('nan')).bfloat16(), None",
         "test_keys_are_those_of_the_format"),
    Twin("index_keys", "queries are not rotated with their keys",
         "return walsh_hadamard(q) if self.format.rotate else q", "return q",
         "test_needles_from_1k_to_22k_tokens"),
    Twin("splitk_decode", "packed rows are read with one scale a row",
         "(values * power[..., None])", "(values * power[..., :1, None])",
         "test_packed_fp8_rows", ("all entries",), "fp8_rows.py"),
]  # fmt: skip


def microtest(patch: str):
    """The module of a microtest, loaded from its file."""
    spec = spec_from_file_location(f"suites.patches.test_{patch}", SUITES / f"test_{patch}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def convicted(twin, break_kernel, examine):
    """Run the test of a twin on the broken kernel: it must convict, and say why."""
    break_kernel(twin.patch, twin.old, twin.new, twin.file)
    examination = examine(twin.patch)
    with pytest.raises(Violation, match=rf"^{twin.patch}: "):
        getattr(microtest(twin.patch), twin.test)(examination, *twin.arguments, **twin.options)
    report = examination.conclude()
    assert report.verdict is PatchVerdict.CONVICTED
    assert report.reason


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.patch}: {twin.fault}")
def test_a_broken_twin_is_convicted(twin, break_kernel, examine):
    convicted(twin, break_kernel, examine)


def replaced(monkeypatch, name, **changes):
    """The table with one entry that has no file of its own changed."""
    table = tuple(
        dataclasses.replace(p, **changes) if p.name == name else p for p in kernels.ops.PATCHES
    )
    monkeypatch.setattr(kernels.ops, "PATCHES", table)
    binding._bind.cache_clear()


SETTINGS_READ_WRONGLY = [
    ("index_topk", lambda b: int(b.value) - 1, "test_exactly_so_many_of_the_best"),
    ("default_thinking", lambda b: b.value == "off", "test_the_default_is_what_was_asked_for"),
]


@pytest.mark.parametrize(("patch", "parse", "test"), SETTINGS_READ_WRONGLY)
def test_a_setting_read_wrongly_is_convicted(monkeypatch, examine, patch, parse, test):
    install = None  # what `parse` says is then all that is bound
    replaced(monkeypatch, patch, parse=parse, install=install)
    examination = examine(patch)
    with pytest.raises(Violation):
        getattr(microtest(patch), test)(examination)
    binding._bind.cache_clear()
    assert examination.conclude().verdict is not PatchVerdict.EXONERATED
