"""The gate on this repository: what may happen to a commit, in a fresh clone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_fork import commit, edit, git, write

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]
ENTRY = """
[[patch]]
name = "quick_norm"
files = ["kernels/quick_norm.py"]
phase = "both"
on = { flags = ["--patch", "quick_norm"] }
"""


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "clone"
    git(ROOT, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder))
    git(folder, "checkout", "--quiet", "-b", "change")
    return folder


def gated(clone):
    """(exit code, what was said, results of the SARIF file) of the gate on the last commit."""
    folder = clone.parent / "out"
    done = subprocess.run(
        [sys.executable, "-m", "fidelity.cli", "gate", "--base=HEAD~1", f"--run-dir={folder}"],
        cwd=clone,
        env=os.environ | {"PYTHONPATH": str(clone), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    text = " ".join((done.stdout + done.stderr).split())
    (run,) = json.loads((folder / "gate.sarif").read_text())["runs"]
    return done.returncode, text, run["results"]


def places(results):
    found = [(r["ruleId"], r["locations"][0]["physicalLocation"]) for r in results]
    return [(rule, p["artifactLocation"]["uri"], p["region"]["startLine"]) for rule, p in found]


def line_of(clone, path, words):
    lines = (clone / path).read_text(encoding="utf-8").splitlines()
    (at,) = [number for number, line in enumerate(lines, 1) if words in line]
    return at


def test_a_commit_that_breaks_a_kernel_fails_and_names_it(clone):
    path, broken = "kernels/swiglu_clamp.py", "made * scale.float()[:, None].square()"
    edit(clone, path, "made * scale.float()[:, None]", broken)
    commit(clone)
    code, text, results = gated(clone)
    assert code == 1, text
    assert "the patch swiglu_clamp does not pass its microtest" in text
    assert "suites were not run, since this is red already" in text
    assert places(results) == [("microtest", path, line_of(clone, path, broken))]


def test_a_commit_that_touches_docs_runs_nothing_and_passes(clone):
    edit(clone, "docs/gate.md", "# The gate", "# The gate of a change")
    commit(clone)
    code, text, results = gated(clone)
    assert (code, results) == (0, []), text
    assert "may merge: 1 files differ from HEAD~1, none of a patch; nothing was run" in text
    assert not (clone.parent / "out" / "microtests").exists()


def test_a_commit_that_asks_less_of_a_microtest_fails(clone):
    path = "suites/patches/test_swiglu_clamp.py"
    edit(clone, path, "sampled_from([None, 0.0, 0.5, 10.0])", "sampled_from([None])")
    commit(clone)
    code, text, results = gated(clone)
    assert code == 1, text
    assert "the microtest of swiglu_clamp was loosened" in text
    assert places(results) == [
        ("microtest-loosened", path, line_of(clone, path, "sampled_from([None])"))
    ]


def test_a_commit_that_adds_a_patch_without_a_microtest_fails(clone):
    write(clone, "kernels/quick_norm.py", '"""A norm."""\n\n\ndef norm(x):\n    return x\n')
    commit(clone)
    code, text, results = gated(clone)
    assert code == 1, text
    assert "a patch without an entry: kernels/quick_norm.py" in text
    toml = (clone / "fidelity.toml").read_text(encoding="utf-8")
    write(clone, "fidelity.toml", toml + ENTRY)
    git(clone, "add", "--all")
    git(clone, *("-c", "user.name=a", "-c", "user.email=a@b.c"), "commit", "-q", "--amend", "-mx")
    code, text, results = gated(clone)
    assert code == 1, text
    assert "the patch quick_norm has no microtest" in text
    assert places(results) == [("patch-without-microtest", "kernels/quick_norm.py", 1)]
