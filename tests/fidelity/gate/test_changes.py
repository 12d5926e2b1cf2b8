"""The gate on a user's own repository: which changes may merge, and what the others are told."""

import json

import pytest

from tests.fidelity.gate.ended import junit_of, place
from tests.fidelity.synthetic_fork import FILES, KERNEL, MICROTEST, commit, edit, git, write


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
    junit = junit_of(ended)
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
    assert ended.rules == {"microtest-changed", "microtest-loosened"}


def test_a_new_conftest_that_skips_is_no_way_around(light, gate):
    text = "import pytest\ndef pytest_collection_modifyitems(items):\n    del items[1:]\n"
    write(light, "checks/conftest.py", text)
    commit(light)
    ended = gate()
    assert ended.code == 1, ended.text
    assert "new `pytest_collection_modifyitems`" in ended.text
    assert "test_its_error_is_small passed in its version of main, and runs no more" in ended.text


def test_an_entry_that_leaves_fidelity_toml_does_not_free_its_files(light, gate):
    text = FILES["fidelity.toml"]
    write(light, "fidelity.toml", text[text.index("[gate]") :].replace("watch", "# watch"))
    commit(light)
    ended = gate()
    assert ended.code == 1, ended.text
    assert "belonged to fast_norm at the base" in ended.text


def test_file_names_are_data_whatever_they_hold(light, gate):
    names = ("stack/fast_$(touch owned);`x`.py", 'stack/fast_ "q"\'\n|ü.py', "--help", ":(top)x.py")
    for name in names:
        write(light, name, "x = 1\n")
    commit(light)
    write(light, "stack/-rf *.py", "x = 1\n")
    summary = light.parent / "summary.md"
    ended = gate(env={"GITHUB_STEP_SUMMARY": str(summary)}.items())
    assert ended.code == 1, ended.text
    assert "stack/-rf *.py lies in a patched area" in ended.text
    assert place(ended.results[0]) == ("stack/-rf *.py", 1)
    assert not list(light.rglob("owned"))
    assert "patches touched: fast\\_norm" in summary.read_text()
    assert len(junit_of(ended)) == 2  # the stray, and the microtest of the others


@pytest.mark.parametrize("ref", ["no-such-branch", "--output=x", "main:README.md", "$(touch x)"])
def test_a_base_that_does_not_exist_is_told_in_one_sentence(light, gate, ref):
    ended = gate(f"--base={ref}")
    assert ended.code == 2
    assert ended.text.count("\n") == 1, ended.text
    assert f"the base {ref!r} is no commit of this repository" in ended.text
    assert not (light / "x").exists()


def test_a_history_without_a_common_commit_is_told_in_one_sentence(light, gate):
    git(light, "checkout", "--quiet", "--orphan", "other")
    commit(light)
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
        effect["value"] = -effect["limit"]  # far better than anything that can be measured
    baseline.write_text(json.dumps(stored))
    ended = gate(f"--baseline={baseline}")
    assert ended.code == 1, ended.text
    assert ended.rules == {"worse-than-baseline"}
    assert "of its limit" in ended.text


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("import torch_not_there\n", 2, "could not be run"),
        ("", 1, "the patch has no microtest"),
        (
            "import pytest\n\n\ndef test_a():\n    pytest.skip('no GPU')\n",
            2,
            "nothing was measured",
        ),
        ("import os\n\n\ndef test_a():\n    os._exit(3)\n", 2, "exit code 3"),
        ("import time\n\n\ndef test_a():\n    time.sleep(60)\n", 2, "more than 5 s"),
        (
            (
                "from fidelity.errors import Inconclusive\n\n\ndef test_a():\n"
                "    raise Inconclusive('fast_norm inert')\n"
            ),
            2,
            "fast_norm inert",
        ),
    ],
    ids=["import", "empty", "skipped", "dead", "slow", "inert"],
)
def test_a_microtest_that_measures_nothing_never_passes(light, gate, text, code, words):
    """A new microtest, so that no older version of it speaks."""
    slow = "microtest_s = 5" if "sleep" in text else "microtest_s = 120"
    toml = FILES["fidelity.toml"].replace("microtest_s = 120", slow)
    entry = '[[patch]]\nname = "b"\nfiles = ["stack/b.py"]\nmicrotest = "checks/test_b.py"\n'
    write(light, "fidelity.toml", entry + toml)
    write(light, "checks/test_b.py", text)
    ended = gate()
    assert ended.code == code, ended.text
    assert words in ended.text
