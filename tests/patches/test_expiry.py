"""A verdict expires with everything that it rests on."""

import dataclasses

import pytest
import torch

from fidelity.config.settings import resolve_microtests
from fidelity.microtests.verdict_files import expiry
from kernels import PATCHES
from suites.patches import expiry as module
from suites.patches.examination import Examination
from suites.patches.expiry import ROOT, code_of, contents_of, device_words

SETTINGS = resolve_microtests({}, environ={})
EXECUTED = {
    "mhc_bf16": ("baseline/mhc.py", "gpu/mhc_bf16.py", "prepared.py"),
    "splitk_decode": ("baseline/attention.py", "fp8_rows.py", "fp8_kv.py", "index_keys.py"),
    "indexer_triton": ("baseline/indexer.py", "index_keys.py", "gpu/indexer_triton.py"),
    "index_topk": ("baseline/indexer.py",),
    "index_keys": ("index_keys.py",),
    "moe_routed_scaling": ("baseline/moe.py",),
    "fp8_kv": ("index_keys.py", "gpu/fp8_kv.py"),
    "nvfp4_experts": ("fp4.py", "gpu/fp4.py", "gpu/rounding.py", "index_keys.py"),
    "mxfp4_experts": ("fp4.py", "gpu/fp4.py", "gpu/rounding.py", "index_keys.py"),
    "swiglu_clamp": ("gpu/swiglu_clamp.py", "gpu/launch.py"),
    "default_thinking": (),
}
BINDS = ("ops.py", "patch.py", "table.py", "__init__.py")
JUDGES = (
    *("fidelity/microtests/judge.py", "fidelity/statistics/ladder.py", "fidelity/words.py"),
    *("suites/patches/conftest.py", "suites/patches/examination.py", "fidelity/errors.py"),
)


def relative(name):
    return {path.relative_to(ROOT).as_posix() for path in code_of(name)}


@pytest.mark.parametrize("name", [patch.name for patch in PATCHES])
def test_the_code_of_a_verdict_is_what_ran_and_what_judged(name):
    found = relative(name)
    assert {f"kernels/{path}" for path in (*EXECUTED[name], *BINDS)} <= found
    assert {*JUDGES, f"suites/patches/test_{name}.py"} <= found


def test_a_kernel_is_no_part_of_the_code_of_another():
    assert "kernels/swiglu_clamp.py" not in relative("mhc_bf16")
    assert "kernels/gpu/mhc_bf16.py" not in relative("swiglu_clamp")
    assert "engine/encoding.py" in relative("default_thinking")


def test_a_checkpoint_that_is_trained_anew_ends_a_verdict_and_its_card_does_not(tmp_path):
    for name, text in (("model.safetensors", "w"), ("config.json", "{}"), ("README.md", "card")):
        (tmp_path / name).write_text(text)
    first = contents_of(tmp_path)
    for name, text, ends in (
        ("README.md", "another card", False),
        ("config.json", "{ }", True),
        ("model.safetensors", "v", True),
    ):
        contents_of.cache_clear()
        (tmp_path / name).write_text(text)
        assert (contents_of(tmp_path) != first) is ends, name
        first = contents_of(tmp_path)


def test_a_large_file_is_told_by_its_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_WHOLE_BYTES", 100)
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 10)
    path = tmp_path / "model.safetensors"
    found = set()
    for at in (0, 9990 * 128 // 255, 9999):
        contents_of.cache_clear()
        data = bytearray(10_000)
        data[at] = 1
        path.write_bytes(data)
        found.add(contents_of(tmp_path))
    assert len(found) == 3


def test_seed_contents_and_compiler_are_part_of_the_scope(tmp_path, monkeypatch):
    (tmp_path / "x.safetensors").write_text("dump")
    scopes = []
    for settings, source in (
        (SETTINGS, "synthetic"),
        (dataclasses.replace(SETTINGS, seed=7), "synthetic"),
        (dataclasses.replace(SETTINGS, inputs=tmp_path), "harvested"),
    ):
        examination = Examination("swiglu_clamp", settings, source=source)
        examination.must("it", holds=True, sentence="")
        scopes.append(examination.conclude().scope)
    assert expiry(scopes[0], scopes[1]) == "seed was 0, is 7"
    assert "the contents of the checkpoint or dumps changed" in expiry(scopes[0], scopes[2])
    assert device_words("cpu", torch.device("cpu")) == "cpu"
    monkeypatch.setattr(module.importlib.metadata, "version", lambda name: f"9 of {name}")
    words = device_words("NVIDIA H200, torch 2", torch.device("cuda"))
    assert words == "NVIDIA H200, torch 2, triton 9 of triton"
