"""One name in four places: the table, kernels/, reference/ and suites/patches/."""

import ast
from pathlib import Path

import pytest

from kernels import PATCHES
from tests.patches.test_broken_twins import SETTINGS_READ_WRONGLY, TWINS
from tests.project.test_suites_are_complete import functions_of, missing_labels

ROOT = Path(__file__).parents[2]
NAMES = sorted(patch.name for patch in PATCHES)
MICROTESTS = sorted((ROOT / "suites" / "patches").glob("test_*.py"))
WITHOUT_KERNEL = {"index_topk", "default_thinking"}
WITHOUT_TRITON = {"index_keys"}  # its arithmetic is torch on every device
SHARED_KERNELS = {"fp4", "launch", "rounding", "__init__"}


def stems(folder):
    return {path.stem for path in (ROOT / folder).glob("*.py")}


def test_each_patch_has_its_microtest_and_its_truth():
    assert [path.stem.removeprefix("test_") for path in MICROTESTS] == NAMES
    assert set(NAMES) <= stems("reference")


def test_each_patch_with_a_kernel_has_its_file_and_its_triton_form():
    with_kernel = set(NAMES) - WITHOUT_KERNEL
    assert with_kernel <= stems("kernels")
    assert not WITHOUT_KERNEL & stems("kernels")
    own = {name for name in with_kernel - WITHOUT_TRITON if not name.endswith("fp4_experts")}
    assert stems("kernels/gpu") == own | SHARED_KERNELS
    interpreted = {path.stem for path in (ROOT / "tests/kernels/interpreted").glob("test_*.py")}
    assert {f"test_{name}" for name in own | {"fp4"}} <= interpreted


@pytest.mark.parametrize("microtest", MICROTESTS, ids=lambda path: path.stem)
def test_each_microtest_says_what_it_claims(microtest):
    assert missing_labels(microtest.read_text()) == []
    assert len(functions_of(ast.parse(microtest.read_text()))) >= 2


def test_each_microtest_has_been_seen_red():
    broken = {twin.patch for twin in TWINS} | {patch for patch, _, _ in SETTINGS_READ_WRONGLY}
    assert broken == set(NAMES)


def test_each_twin_names_a_test_that_there_is():
    for twin in TWINS:
        source = (ROOT / "suites" / "patches" / f"test_{twin.patch}.py").read_text()
        assert twin.test in [test.name for test in functions_of(ast.parse(source))]
