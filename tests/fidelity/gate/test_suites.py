"""The gate runs the suites that a patch can affect, and holds them against the baseline."""

from pathlib import Path

from tests.fidelity.synthetic_fork import FILES, KERNEL, edit, git, write

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
    """Give the fork a suite of its own that its patch can affect, a deployment, and a change."""
    text = FILES["fidelity.toml"].replace("[gate]", '[gate]\ndeployment = "stub"')
    suite = 'phase = "both"\nsuites = ["claims/test_needle.py"]'
    write(repository, "fidelity.toml", text.replace('phase = "both"', suite) + SUITES)
    git(repository, "commit", "--all", "--quiet", "--allow-empty", "-m", "a suite")
    git(repository, "branch", "--force", "main")
    with (repository / KERNEL).open("a") as file:
        file.write("# faster\n")
    fake = (Path(__file__).parents[1] / "fake_deployment.py").read_text()
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


def test_a_run_of_suites_that_crashes_is_never_green(light, gate):
    with_suites(light, "60")
    edit(light, "claims/conftest.py", "        made.spec = settings.target\n", "")
    ended = gate()
    assert ended.code == 2, ended.text
    assert "and without a verdict" in ended.text
