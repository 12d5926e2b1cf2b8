"""The stateful suite finds an abort fault and an eviction fault, and what it writes shows them."""

import json
import subprocess
import sys
import time

import pytest
from product import BIN, ROOT, clean_environ, finished

from fidelity.words import Blame, Outcome, RunVerdict

pytestmark = pytest.mark.acceptance

POOL = "--launch-arg=--max-total-tokens=4096"
FAULTS = {
    "abort_publishes_half_page": (),
    "evicted_page_not_cleared": (POOL,),
}
MOST_REQUESTS = 6
MOST_S = 300


def replayed(script, *arguments, folder):
    """Play a script on a fresh server; return the exit code and what was printed."""
    words = [BIN / "fidelity", "replay", script, "--deployment=embedded", *arguments]
    return ended([*words, f"--run-dir={folder}"], cwd=ROOT)


def by_pytest(test, *arguments, folder):
    """Run the written test on a fresh server, from its own folder."""
    options = [word.replace("--launch-arg", "--fidelity-launch-arg") for word in arguments]
    words = [sys.executable, "-m", "pytest", "-c", "/dev/null", f"--rootdir={test.parent}", test]
    words += ["--fidelity-deployment=embedded", f"--fidelity-config={ROOT / 'fidelity.toml'}"]
    return ended([*words, *options, f"--fidelity-run-dir={folder}"], cwd=test.parent)


def ended(words, *, cwd):
    ran = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=MOST_S,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_script_reproduces_it_on_a_fresh_server(name, tmp_path):
    began = time.monotonic()
    launch = [f"--launch-arg=--fault={name}", *FAULTS[name]]
    ran = finished(
        "stateful", "--deployment=embedded", *launch, folder=tmp_path / "run", name=f"fuzz {name}"
    )
    (finding,) = ran.findings.values()
    assert finding.outcome is Outcome.FAIL, ran.told()
    assert finding.blame is Blame.DEPLOYMENT
    assert ran.verdict.verdict is RunVerdict.UNFAITHFUL
    assert ran.code == 1
    assert time.monotonic() - began < MOST_S
    (script,) = ran.folder.glob("stateful_*.json")
    steps = json.loads(script.read_text())["steps"]
    assert sum(len(step.get("steps", [step])) for step in steps) <= MOST_REQUESTS, steps
    assert script.name in ran.report
    assert "fidelity replay" in ran.report

    code, told = replayed(script, *launch, folder=tmp_path / "again")
    assert code == 1, told
    if not FAULTS[name]:
        return
    # what a user commits: the pytest file beside the script, run by plain pytest
    (test,) = ran.folder.glob("test_stateful_*.py")
    code, told = by_pytest(test, *launch, folder=tmp_path / "tested")
    assert code == 1, told
    assert "rounding explains" in told
    code, told = by_pytest(test, *FAULTS[name], folder=tmp_path / "clean")
    assert code == 0, told


def test_a_clean_server_with_a_small_pool_has_no_finding(tmp_path):
    """With a large one `make report` shows it."""
    ran = finished(
        "stateful", "--deployment=embedded", POOL, folder=tmp_path / "run", name="fuzz, clean"
    )
    assert ran.code == 0, ran.told()
    assert all(f.outcome is Outcome.PASS for f in ran.findings.values())
