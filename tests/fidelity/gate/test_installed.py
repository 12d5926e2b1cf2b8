"""The gate as the action and the hook start it."""

import os
import subprocess
import sys
import textwrap

from tests.fidelity.gate.ended import ROOT
from tests.fidelity.synthetic_fork import KERNEL, edit, git


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
        "ACCEPTED_RULES": "",
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
