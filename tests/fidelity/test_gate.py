"""The gate on a user's own repository: which changes may merge, and what the others are told."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest

from tests.fidelity.synthetic_fork import (
    FILES,
    KERNEL,
    MICROTEST,
    commit,
    edit,
    fork,
    git,
    write,
)

ROOT = Path(__file__).parents[2]


class Ended(NamedTuple):
    code: int
    text: str
    folder: Path

    @property
    def results(self):
        return json.loads((self.folder / "gate.sarif").read_text())["runs"][0]["results"]

    @property
    def rules(self):
        return {result["ruleId"] for result in self.results}


@pytest.fixture
def repository(tmp_path):
    return fork(tmp_path / "fork")


@pytest.fixture
def gate(repository, tmp_path):
    def run(*arguments, base="main", env=()):
        folder = tmp_path / "out"
        command = [sys.executable, "-m", "fidelity.cli", "gate", "--base", base]
        command += [f"--run-dir={folder}", *arguments]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **dict(env)}
        made = subprocess.run(
            command, cwd=repository, env=environ, capture_output=True, text=True, timeout=300
        )
        return Ended(made.returncode, made.stdout + made.stderr, folder)

    return run


def place(result):
    where = result["locations"][0]["physicalLocation"]
    return unquote(where["artifactLocation"]["uri"]), where["region"]["startLine"]


def test_a_commit_that_touches_docs_only_runs_nothing_and_passes(repository, gate):
    edit(repository, "README.md", "one speed patch", "a speed patch")
    commit(repository)
    ended = gate()
    assert ended.code == 0, ended.text
    assert "may merge: 1 files differ from main, none of a patch; nothing was run" in ended.text
    assert not (ended.folder / "microtests").exists()
    assert ended.results == []


def test_a_patch_that_still_agrees_passes_and_one_that_breaks_fails_and_is_named(repository, gate):
    edit(repository, KERNEL, "x * weight / scale", "weight * x / scale")
    commit(repository)
    ended = gate()
    assert ended.code == 0, ended.text
    assert "patches touched: fast_norm" in ended.text
    edit(repository, KERNEL, "weight * x / scale", "weight * x / scale.square()")
    ended = gate()  # not committed yet: the work tree counts
    assert ended.code == 1, ended.text
    assert "the patch fast_norm does not pass its microtest" in ended.text
    assert ended.rules == {"microtest"}
    assert place(ended.results[0]) == (KERNEL, 12)
    junit = ET.parse(ended.folder / "gate-junit.xml").getroot()[0]
    assert junit.get("failures") == "1"
    assert junit[0].get("name") == "fast_norm"


def test_a_commit_that_loosens_a_tolerance_fails_with_that_reason(repository, gate):
    edit(repository, MICROTEST, "TOLERANCE = 1e-5", "TOLERANCE = 1e-1")
    commit(repository)
    ended = gate()
    assert ended.code == 1, ended.text
    assert "the microtest of fast_norm was loosened" in ended.text
    assert "TOLERANCE was 1e-05, is 0.1" in ended.text
    assert ended.rules == {"microtest-loosened"}
    assert place(ended.results[0]) == (MICROTEST, 8)
    assert gate("--accept-loosened=fast_norm").code == 0


def test_a_commit_that_adds_a_patch_without_a_microtest_fails_with_that_reason(repository, gate):
    write(repository, "stack/quick_rope.py", "def quick_rope(x):\n    return x\n")
    commit(repository)
    ended = gate()
    assert ended.code == 1, ended.text
    assert "a patch without an entry: stack/quick_rope.py" in ended.text
    assert place(ended.results[0]) == ("stack/quick_rope.py", 1)
    entry = '\n[[patch]]\nname = "quick_rope"\nfiles = ["stack/quick_rope.py"]\n'
    write(repository, "fidelity.toml", FILES["fidelity.toml"] + entry)
    ended = gate()
    assert ended.code == 1, ended.text
    assert "the patch quick_rope has no microtest" in ended.text
    assert ended.rules == {"patch-without-microtest"}
    assert place(ended.results[0])[0] == "stack/quick_rope.py"


def test_a_kernel_and_its_test_that_are_bent_together_are_found_by_the_old_test(repository, gate):
    """The text of the test asks for no less: its truth was bent, and only a run can tell."""
    edit(repository, KERNEL, "add(1e-6)", "add(1e-2)")
    edit(repository, MICROTEST, "keepdim=True) + 1e-6", "keepdim=True) + 1e-2")
    commit(repository)
    ended = gate()
    assert ended.code == 1, ended.text
    assert "its version of main does not pass on the same patch" in ended.text
    assert ended.rules == {"microtest-loosened"}


def test_a_new_conftest_that_skips_is_no_way_around(repository, gate):
    text = "import pytest\ndef pytest_collection_modifyitems(items):\n    del items[1:]\n"
    write(repository, "checks/conftest.py", text)
    commit(repository)
    ended = gate()
    assert ended.code == 1, ended.text
    assert "new `pytest_collection_modifyitems`" in ended.text
    assert "test_its_error_is_small passed in its version of main, and runs no more" in ended.text


def test_an_entry_that_leaves_fidelity_toml_does_not_free_its_files(repository, gate):
    text = FILES["fidelity.toml"]
    write(repository, "fidelity.toml", text[text.index("[gate]") :].replace("watch", "# watch"))
    commit(repository)
    ended = gate()
    assert ended.code == 1, ended.text
    assert "belonged to fast_norm at the base" in ended.text


def test_file_names_are_data_whatever_they_hold(repository, gate):
    names = ("stack/fast_$(touch owned);`x`.py", "stack/fast_ \"q\"'\n|ü.py", "--help", ":(top)x.py")
    for name in names:
        write(repository, name, "x = 1\n")
    commit(repository)
    write(repository, "stack/-rf *.py", "x = 1\n")
    summary = repository.parent / "summary.md"
    ended = gate(env={"GITHUB_STEP_SUMMARY": str(summary)}.items())
    assert ended.code == 1, ended.text
    assert "stack/-rf *.py lies in a patched area" in ended.text
    assert place(ended.results[0]) == ("stack/-rf *.py", 1)
    assert not list(repository.rglob("owned"))
    assert "patches touched: fast\\_norm" in summary.read_text()
    ET.parse(ended.folder / "gate-junit.xml")


@pytest.mark.parametrize("ref", ["no-such-branch", "--output=x", "main:README.md", "$(touch x)"])
def test_a_base_that_does_not_exist_is_told_in_one_sentence(repository, gate, ref):
    ended = gate(f"--base={ref}")
    assert ended.code == 2
    assert ended.text.count("\n") == 1, ended.text
    assert f"the base {ref!r} is no commit of this repository" in ended.text
    assert not (repository / "x").exists()


def test_a_history_without_a_common_commit_is_told_in_one_sentence(repository, gate):
    git(repository, "checkout", "--quiet", "--orphan", "other")
    commit(repository)
    ended = gate()
    assert ended.code == 2
    assert "no common commit here" in ended.text


def test_an_effect_that_is_worse_than_in_the_baseline_fails(repository, gate, tmp_path):
    edit(repository, KERNEL, "x * weight / scale", "weight * x / scale")
    baseline = tmp_path / "baseline.json"
    missing = gate(f"--baseline={baseline}")
    assert missing.code == 2
    assert "no baseline at" in missing.text
    assert gate(f"--baseline={baseline}", "--baseline-update").code == 0
    stored = json.loads(baseline.read_text())
    effects = stored["microtests"]["fast_norm"]["effects"]
    assert effects
    assert gate(f"--baseline={baseline}").code == 0
    for effect in effects.values():
        effect[0 if isinstance(effect, list) else "value"] = 0.0
    baseline.write_text(json.dumps(stored))
    ended = gate(f"--baseline={baseline}")
    assert ended.code == 1, ended.text
    assert ended.rules == {"worse-than-baseline"}
    assert "of its limit" in ended.text
