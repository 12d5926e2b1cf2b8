"""Patches are examined on what a dump holds, broken kernels are convicted there, and what a dump
does not hold is said.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fidelity.config.settings import resolve_microtests
from fidelity.errors import Violation
from fidelity.microtests.results import HARVESTED
from fidelity.words import PatchVerdict
from reference.dumps import write_dump
from reference.model import Model
from reference.safetensors_file import read_safetensors, write_safetensors
from suites.patches.checkpoint import Checkpoint
from suites.patches.dumped_layers import NotHarvestedError
from suites.patches.examination import Examination, Examinations
from suites.patches.harvest import Harvest
from suites.patches.harvested_inputs import clamped_frac, expert_cases
from suites.patches.whole_model import NANO, tokens_of
from tests.patches.test_broken_twins import microtest

ROOT = Path(__file__).parents[2]
SETTINGS = dataclasses.replace(resolve_microtests({}, environ={}), device="cpu")
TESTS = {
    "mhc_bf16": "test_harvested_streams",
    "splitk_decode": "test_harvested_rows",
    "fp8_kv": "test_harvested_rows",
    "mxfp4_experts": "test_harvested_rows",
    "nvfp4_experts": "test_harvested_rows",
    "swiglu_clamp": "test_harvested_rows",
    "moe_routed_scaling": "test_harvested_routing",
}
TWINS = [
    ("mhc_bf16", "return y, post, comb", "return y, post, comb.transpose(1, 2).contiguous()", ""),
    ("splitk_decode", "range(0, rows.shape[1], SPLIT)",
     "range(0, max(SPLIT, rows.shape[1] - SPLIT), SPLIT)", ""),
    ("splitk_decode", "top[..., 0] + torch.log(total)", "top[..., 0]", ""),
    ("fp8_kv", "(fraction == 0.5).int()", "1", ""),
    ("fp8_kv", "rows[:, plain:].bfloat16().float()", "rows[:, plain:].float()", ""),
    ("mxfp4_experts", "torch.stack((packed & 15, packed >> 4)",
     "torch.stack((packed >> 4, packed & 15)", "fp4.py"),
    ("nvfp4_experts", "* stored.factors[expert]", "", "fp4.py"),
    ("swiglu_clamp", "made * scale.float()[:, None]", "made * scale.float()[:, None].square()", ""),
    ("swiglu_clamp", "if limit is not None and limit > 0:", "if False:", ""),
    ("swiglu_clamp", "g / (1 + torch.exp(-g)) * u", "g * u", ""),
    ("moe_routed_scaling", "(scaling / (", "(scaling * scaling / (", ""),
    ("moe_routed_scaling", "ids.int(), chosen * (scaling",
     "ids.int(), chosen * ((scaling if bias is not None else 1.0)", ""),
    ("moe_routed_scaling", "else scores + bias", "else scores - bias", ""),
]  # fmt: skip


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """One request, dumped by the reference model."""
    folder = tmp_path_factory.mktemp("dumps")
    ids, rows = tokens_of(NANO), {}
    Model(NANO).forward(ids, record=rows.__setitem__)
    write_dump(folder, "plain", ids.tolist(), rows)
    return folder


def without(folder, target, *, metadata=(), tensors=()):
    """The same dump with some of it left out."""
    rows, told = read_safetensors(folder / "plain.safetensors")
    rows = {name: x for name, x in rows.items() if not name.endswith(tuple(tensors) or "\0")}
    write_safetensors(
        target / "plain.safetensors", rows, {k: v for k, v in told.items() if k not in metadata}
    )
    return Harvest(target, Checkpoint(NANO))


def examined(patch, harvest):
    examination = Examination(patch, SETTINGS, source=HARVESTED, data=harvest.label)
    getattr(microtest(patch), TESTS[patch])(examination, harvest)
    return examination.conclude()


@pytest.mark.parametrize("patch", TESTS)
def test_a_right_kernel_is_exonerated_on_harvested_inputs(dumped, patch):
    report = examined(patch, Harvest(dumped, Checkpoint(NANO)))
    assert report.verdict is PatchVerdict.EXONERATED, report.reason
    assert "harvested (1 dumps" in report.reason


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin[0]}: {twin[2] or 'nothing'}")
def test_a_broken_kernel_is_convicted_on_harvested_inputs(dumped, break_kernel, twin):
    break_kernel(*twin)
    with pytest.raises(Violation, match=rf"^{twin[0]}: "):
        examined(twin[0], Harvest(dumped, Checkpoint(NANO)))


def test_streams_of_a_dump_are_those_of_the_model(dumped):
    (dump,) = Harvest(dumped, Checkpoint(NANO)).layers()
    for layer, site in enumerate(list(dump.sites())[::2]):
        assert (site.normed - dump.rows[f"L{layer}.attn_in"]).abs().max() < 1e-5


def test_the_share_that_is_clamped_is_counted(dumped):
    case = expert_cases(Harvest(dumped, Checkpoint(NANO)))[-1]
    assert 0 <= clamped_frac(case) < 0.2
    low = case._replace(arguments={**case.arguments, "limit": 1e-6})
    assert 0.5 < clamped_frac(low) < 1  # every up, and gates above zero
    assert clamped_frac(case._replace(arguments={**case.arguments, "limit": None})) == 0


@pytest.mark.parametrize("patch", TESTS)
def test_a_dump_without_token_ids_holds_no_text_for_the_logits(dumped, tmp_path, patch):
    with pytest.raises(NotHarvestedError, match=r"plain\.safetensors has no 'token_ids'"):
        examined(patch, without(dumped, tmp_path, metadata=("token_ids",)))


@pytest.mark.parametrize("patch", set(TESTS) - {"splitk_decode", "fp8_kv"})
def test_a_dump_of_attention_alone_holds_no_streams_and_no_experts(dumped, tmp_path, patch):
    harvest = without(dumped, tmp_path, tensors=("embed", "_out"))
    with pytest.raises(NotHarvestedError, match="no tensor 'embed'"):
        examined(patch, harvest)


def test_what_a_dump_does_not_hold_is_said_in_the_verdict(dumped, tmp_path):
    without(dumped, tmp_path, tensors=("embed", "_out"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "suites/patches",
         "-k", "harvested or runs_only or follows", f"--fidelity-inputs={tmp_path}",
         "--fidelity-patch=swiglu_clamp", "--fidelity-patch=fp8_kv",
         f"--fidelity-run-dir={tmp_path / 'run'}"],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "1 skipped" in done.stdout, done.stdout
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if " inputs (" in line}
    assert lines["swiglu_clamp"].endswith(
        "; synthetic inputs alone were examined: inputs: plain.safetensors has no tensor 'embed'"
    )
    assert "exonerated  fp8_kv on harvested inputs" in done.stdout


def test_dumps_that_cannot_be_used_are_the_reason_also_where_a_value_was_asked_for(tmp_path):
    settings = dataclasses.replace(SETTINGS, patch=("index_keys=int4,row",))
    examination = Examination("index_keys", settings, source=HARVESTED)
    examination.failed("test_harvested_keys: inputs: each of the 0 *.safetensors")
    report = examination.conclude()
    assert report.verdict is PatchVerdict.UNDECIDED
    assert report.reason == "test_harvested_keys: inputs: each of the 0 *.safetensors"


def test_a_patch_without_harvested_inputs_says_so(tmp_path):
    settings = dataclasses.replace(SETTINGS, inputs=tmp_path, run_dir=tmp_path)
    every = Examinations(settings)
    every.of("index_topk").must("it", holds=True, sentence="")
    (report,) = every.conclude()
    assert report.reason.endswith(
        "; synthetic inputs alone were examined: no tensor of a dump is an input of it"
    )
