"""fidelity.toml names, for each patch, every file that can change its verdict: by what is imported.

A kernel that begins to import a shared module, or a microtest that begins to rest on another file,
turns this red until the globs say so.
"""

from pathlib import Path

import pytest

from fidelity.config.config_file import read_config
from fidelity.gate.globs import matches
from fidelity.gate.mapping import is_support, strays, touched_patches
from fidelity.gate.repository import Change
from fidelity.microtests.import_closure import import_closure

ROOT = Path(__file__).parents[2]
CONFIG = read_config(ROOT / "fidelity.toml")
BINDING = ("kernels/__init__.py", "kernels/ops.py", "kernels/table.py")
# They read settings, shape records, start a server and reach it; none of them judges.
DECIDE_NOTHING = (
    *("fidelity/config/", "fidelity/records.py"),
    *("fidelity/deployment/", "fidelity/endpoint/", "fidelity/dialects/"),
)
CHECKPOINT = ("model.safetensors", "config.json", "tokenizer.json", "encoding.json")


def touched(path):
    return {found.patch.name for found in touched_patches([Change(path=path)], CONFIG, CONFIG)}


def relative(paths):
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


@pytest.mark.parametrize("patch", CONFIG.patches)
def test_a_change_of_what_a_kernel_imports_concerns_its_patch(patch):
    spec = CONFIG.patches[patch]
    own = [ROOT / glob for glob in spec.files if matches(glob, ["kernels/**/*.py"])]
    assert all(path.is_file() for path in own), own
    found = import_closure(own, ROOT, packages=["kernels"], stop=BINDING)
    assert [path for path in relative(found) if patch not in touched(path)] == []


@pytest.mark.parametrize("patch", CONFIG.patches)
def test_a_change_of_what_judges_a_patch_concerns_it_and_is_held_against_the_base(patch):
    spec = CONFIG.patches[patch]
    begin = [
        ROOT / spec.microtest,
        ROOT / "suites/patches/conftest.py",
        ROOT / "fidelity/plugin.py",
    ]
    found = import_closure(
        begin,
        ROOT,
        packages=["fidelity", "suites", "reference"],
        stop=(*DECIDE_NOTHING, "fidelity/runs/", "fidelity/measure.py", "fidelity/hookspecs.py"),
    )
    rests_on = [path for path in relative(found) if path != spec.microtest]
    assert [path for path in rests_on if patch not in touched(path)] == []
    told = (path for path in rests_on if not is_support(path, spec, CONFIG))
    assert sorted(told) == ["fidelity/errors.py", "fidelity/words.py"]  # shared: the run decides


@pytest.mark.parametrize("path", ["fidelity/__init__.py", "suites/__init__.py", "conftest.py"])
def test_what_runs_before_every_microtest_concerns_every_patch(path):
    assert touched(path) == set(CONFIG.patches)


@pytest.mark.parametrize("name", CHECKPOINT)
def test_a_change_of_the_checkpoint_concerns_every_patch_that_asks_the_whole_model(name):
    assert touched(f"engine/checkpoints/nano/{name}") == set(CONFIG.patches)


def test_a_shared_table_of_codes_concerns_every_kernel_that_imports_it():
    assert touched("kernels/index_keys.py") == {
        *("index_keys", "indexer_triton", "fp8_kv", "splitk_decode"),
        *("nvfp4_experts", "mxfp4_experts"),
    }


@pytest.mark.parametrize("path", ["kernels/new.cu", "kernels/gpu/new.cuh", "kernels/new/x.cpp"])
def test_a_kernel_in_any_language_needs_an_entry(path):
    (found,) = strays([Change(path=path)], [], CONFIG, CONFIG)
    assert "a patch without an entry" in found.message
