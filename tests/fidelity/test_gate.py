"""The gate on a user's own repository: which changes may merge, and what the others are told."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest

from tests.fidelity.synthetic_fork import (
    FILES,
    KERNEL,
    LIGHT,
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
def light(tmp_path):
    """The same without torch, for what is not about figures: a second less for each process."""
    return fork(tmp_path / "fork", {**FILES, **LIGHT})


@pytest.fixture
def gate(tmp_path):
    repository = tmp_path / "fork"

    def run(*arguments, base="main", env=()):
        folder = tmp_path / "out"
        command = [sys.executable, "-m", "fidelity.cli", "gate", "--base", base]
        command += [f"--run-dir={folder}", *arguments]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **dict(env)}
        made = subprocess.run(
            command,
            cwd=repository,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Ended(made.returncode, made.stdout + made.stderr, folder)

    return run


def junit_of(ended):
    return ET.parse(ended.folder / "gate-junit.xml").getroot()[0]  # noqa: S314 - our own file


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
    assert ended.rules == {"microtest-loosened"}


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


SUITES = """
[deployments.stub]
base_url = "http://127.0.0.1:1/v1"
"""
CONFTEST = """
import sys
import textwrap
sys.path.insert(0, FOLDER)
from fake_deployment import FakeDeployment
def pytest_fidelity_open_deployment(settings, run_dir):
    async def opening():
        made = FakeDeployment()
        made.spec = settings.target
        return made
    return opening()
"""
SUITE = """
from fake_deployment import probes

def test_recall(measure):
    measure.rate_at_least(measure.ask(probes(COUNTS)), 0.80, title="recall >= 0.80")
"""


def with_suites(repository, counts, calls=7):
    """Give the fork a suite of its own that its patch can affect, and a deployment."""
    text = FILES["fidelity.toml"].replace("[gate]", '[gate]\ndeployment = "stub"')
    suite = 'phase = "both"\nsuites = ["claims/test_needle.py"]'
    write(repository, "fidelity.toml", text.replace('phase = "both"', suite) + SUITES)
    fake = (Path(__file__).parent / "fake_deployment.py").read_text()
    state = f'"fast_norm", "state": "on", "calls": {calls}'
    fake = fake.replace('"index_keys", "state": "on", "calls": 7', state)
    assert state in fake
    write(repository, "claims/fake_deployment.py", fake)
    folder = str(repository / "claims")
    write(repository, "claims/conftest.py", CONFTEST.replace("FOLDER", repr(folder)))
    write(repository, "claims/test_needle.py", SUITE.replace("COUNTS", counts))


def test_suites_that_a_patch_can_affect_are_run_and_held_against_the_baseline(
    light, gate, tmp_path
):
    baseline = f"--baseline={tmp_path / 'baseline.json'}"
    with_suites(light, "60")
    ended = gate(baseline, "--baseline-update", f"--run-dir={tmp_path / 'one'}")
    assert ended.code == 0, ended.text
    assert "fast_norm: it was on, 7 calls" in ended.text
    with_suites(light, "435, 65")  # .87, still a pass for the suite, which asks for .80
    ended = gate(baseline, f"--run-dir={tmp_path / 'two'}")
    assert ended.code == 1, ended.text
    assert "is below 1.000 of the baseline by more than 0.1" in ended.text
    with_suites(light, "10, 50")
    ended = gate(baseline, f"--run-dir={tmp_path / 'three'}")
    assert ended.code == 1, ended.text
    assert "with fast_norm changed: recall >= 0.80" in ended.text
    assert "it was a pass in the baseline" in ended.text


def test_a_patch_that_never_ran_while_the_suites_did_leaves_the_gate_undecided(light, gate):
    with_suites(light, "60", calls=0)
    ended = gate()
    assert ended.code == 2, ended.text
    assert "it was on and never ran: inert" in ended.text


def test_suites_wait_for_the_microtests(light, gate):
    with_suites(light, "60")
    edit(light, KERNEL, "x * weight", "x + weight")
    ended = gate()
    assert ended.code == 1
    assert "suites were not run, since this is red already: claims/test_needle.py" in ended.text


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


def test_a_run_of_suites_that_crashes_is_never_green(light, gate):
    with_suites(light, "60")
    edit(light, "claims/conftest.py", "        made.spec = settings.target\n", "")
    ended = gate()
    assert ended.code == 2, ended.text
    assert "and without a verdict" in ended.text


def test_the_action_hands_its_inputs_on_as_data(light, tmp_path):
    """Its script is run as GitHub runs it: inputs as variables, `bash -eo pipefail`."""
    text = (ROOT / ".github/actions/gate/action.yml").read_text(encoding="utf-8")
    assert "${{" not in text.rpartition("run: |\n")[2]
    script = textwrap.dedent(text.rpartition("run: |\n")[2])
    edit(light, KERNEL, "x * weight", "x + weight")
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHON": sys.executable,
        "BASE": "main",
        "BASELINE": "",
        "MICROTESTS_ONLY": "true",
        "ACCEPTED": "",
        "RUN_DIR": "runs/a b",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    for base, code in (("main", 1), ("$(touch owned)", 2)):
        made = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=light,
            env={**environ, "BASE": base},
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == code, made.stdout + made.stderr
    assert not (light / "owned").exists()
    assert "sarif=runs/a b/gate.sarif" in (tmp_path / "output").read_text()
    assert "must not merge" in (tmp_path / "summary.md").read_text()
    assert (light / "runs/a b/gate.sarif").is_file()
    assert "runs" not in git(light, "status", "--short", "--untracked-files=all")


def test_the_hook_gates_what_is_about_to_be_committed(light, gate):
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert "entry: fidelity gate --microtests-only\n" in text
    assert 'args: ["--base=HEAD"]' in text
    assert gate("--microtests-only", base="HEAD").code == 0
    edit(light, KERNEL, "x * weight", "x + weight")
    git(light, "add", "--all")
    assert gate("--microtests-only", base="HEAD").code == 1
