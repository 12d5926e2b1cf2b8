"""Globs, entries and phases: which patches a change concerns."""

from pathlib import Path

import pytest

from fidelity.config.config_file import ConfigFile, GateSpec, read_config
from fidelity.config.deployment_spec import DeploymentSpec
from fidelity.config.patch_spec import PHASES, PatchSpec, Toggle
from fidelity.gate.globs import matches
from fidelity.gate.mapping import is_support, strays, touched_patches
from fidelity.gate.repository import Change
from fidelity.gate.suites_run import ALL, BY_PHASE, suites_of, switched_on

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "glob", "meant"),
    [
        ("kernels/a.py", "kernels/*.py", True),
        ("kernels/gpu/a.py", "kernels/*.py", False),
        ("kernels/gpu/a.py", "kernels/**/*.py", True),
        ("kernels/a.py", "kernels/**/*.py", True),
        ("kernels/gpu/b/a.c", "kernels/", True),
        ("kernels2/a.py", "kernels/", False),
        ("a[1].py", "a[1].py", True),
        ("a1.py", "a[1].py", True),
        ("x/a.py", "./x/a.py", True),
        ("X/a.py", "x/a.py", False),
    ],
)
def test_globs(path, glob, meant):
    assert matches(path, [glob]) is meant


def patch(name, **fields):
    made = {"files": (f"k/{name}.py",), "microtest": f"t/test_{name}.py"} | fields
    return PatchSpec(name=name, **made)


def config(*patches, **gate):
    return ConfigFile(patches={p.name: p for p in patches}, gate=GateSpec(**gate))


def names(paths, now, was):
    return [t.patch.name for t in touched_patches([Change(path=p) for p in paths], now, was)]


def test_a_change_concerns_the_patches_of_its_file_its_microtest_and_what_they_rest_on():
    both = config(patch("a"), patch("b"), shared=("k/common/",), microtest_support=("ref/*.py",))
    assert names(["k/a.py"], both, both) == ["a"]
    assert names(["t/test_b.py"], both, both) == ["b"]
    for path in ("k/common/x/y.py", "ref/a.py", "t/conftest.py", "conftest.py", "t/inputs.py"):
        assert names([path], both, both) == ["a", "b"], path
    for path in ("ref/a.py", "t/inputs.py"):  # what counted at the base does not leave by itself
        assert names([path], config(patch("a")), both) == ["a"], path
    for path in ("README.md", "k/c.py", "other/conftest.py", "t/test_c.py", "fidelity.toml"):
        assert names([path], both, both) == [], path


def test_a_changed_entry_concerns_its_patch_and_an_old_glob_still_counts():
    was, now = config(patch("a"), patch("b")), config(patch("a", phase="decode"), patch("b"))
    assert names(["fidelity.toml"], now, was) == ["a"]
    assert names(["fidelity.toml"], now, None) == ["a", "b"]
    narrowed = config(patch("a", files=("k/z.py",)))
    assert names(["k/a.py"], narrowed, config(patch("a"))) == ["a"]


def test_a_patch_that_was_renamed_keeps_its_past():
    now, was = config(patch("b", microtest="t/test_a.py")), config(patch("a"))
    (found,) = touched_patches([Change(path="fidelity.toml")], now, was)
    assert found.was.name == "a"
    new = config(patch("a"), patch("b", files=("k/a.py",)))  # a is still there: b is new
    assert touched_patches([Change(path="k/a.py")], new, was)[1].was is None


def test_kernels_beside_their_microtests_are_no_support():
    both = config(patch("a", microtest="k/test_a.py"), shared=("k/common.py",))
    assert not is_support("k/a.py", both.patches["a"], both)
    assert not is_support("k/common.py", both.patches["a"], both)
    assert is_support("k/inputs.py", both.patches["a"], both)
    at_root = patch("r", microtest="test_r.py")
    assert not is_support("other/x.py", at_root, both)
    assert is_support("conftest.py", at_root, both)


def test_strays_are_told_once_and_a_deleted_file_is_none():
    now, was = config(watch=("k/",)), config(patch("a"), watch=("k/",))
    changes = [
        Change(path="k/a.py"),
        Change(path="fidelity.toml"),
        Change(path="k/x", exists=False),
    ]
    (found,) = strays(changes, ["k/a.py", "README.md"], now, was)
    assert found.path == "k/a.py"
    less = config(patch("a"))  # what was watched at the base is watched still
    assert [i.path for i in strays([Change(path="k/n.py")], [], less, config(watch=("k/",)))]


def test_suites_go_by_phase_unless_the_entry_names_them():
    assert suites_of([], ["plumbing"]) == ()
    assert suites_of([patch("a", phase="both")], ["plumbing"]) == (ALL,)
    assert suites_of([patch("a", suites=("x",)), patch("b", suites=("x", "y"))], ["z"]) == (
        "x",
        "y",
        "z",
    )
    assert "twins_phases" in suites_of([patch("a", phase="decode")], [])


def test_every_suite_of_a_phase_is_one_that_there_is():
    there = {path.stem.removeprefix("test_") for path in (ROOT / "suites").glob("test_*.py")}
    assert {name for suites in BY_PHASE.values() for name in suites} <= there
    assert set(BY_PHASE) <= set(PHASES)


def test_patches_are_switched_on_where_the_deployment_does_not_have_them():
    a = patch("a", on=Toggle(flags=("--patch", "a={value}"), env={"A": "{value}"}))
    target = DeploymentSpec(name="d", launch=("serve",))
    made = switched_on([a], target, {"a": "x y"})
    assert (made.arguments, made.env) == (("--patch", "a=x y"), {"A": "x y"})
    assert "its VALUE" in switched_on([a], target, {}).notes[0]
    assert "not launched here" in switched_on([a], DeploymentSpec(name="u"), {"a": "1"}).notes[0]
    have = DeploymentSpec(name="d", launch=("serve",), patches=("a=3",))
    assert switched_on([a], have, {}).arguments == ()


def test_every_kernel_of_this_repository_belongs_to_a_patch_or_to_all():
    here = read_config(ROOT / "fidelity.toml")
    files = [str(p.relative_to(ROOT)) for p in (ROOT / "kernels").rglob("*.py")]
    changes = [Change(path=path) for path in files]
    assert [item.path for item in strays(changes, files, here, None)] == []
    assert not matches("kernels/new_patch.py", here.gate.shared)
    assert all(patch.microtest for patch in here.patches.values())
