"""The command `fidelity`: what it passes to pytest, what it says, and its exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fidelity.deployment.deployment
import fidelity.runs.pytest_run
import reports
from fidelity import cli
from fidelity.records import Finding, Manifest, Trial, read_journal

IMPORTED_ONCE = (fidelity.deployment.deployment, fidelity.runs.pytest_run, reports)
"""An inner pytest forgets what it is the first to import, and would import it each time."""
FAKE = (Path(__file__).parent / "fake_deployment.py").read_text(encoding="utf-8")
CONFTEST = """
import sys
sys.path.insert(0, FOLDER)
from fake_deployment import FakeDeployment
def pytest_fidelity_open_deployment(settings, run_dir):
    async def opening():
        return FakeDeployment()
    return opening()
"""
SUITE = """
from fake_deployment import probe, probes

def test_recall(measure):
    measure.rate_at_least(measure.ask(probes(COUNTS)), 0.80, title="recall >= 0.80")

def test_open(measure):
    measure.rate_at_least(measure.ask(probes(14, 8)), 0.80, title="recall >= 0.80")
"""
URL = "--base-url=http://127.0.0.1:1/v1"


@pytest.fixture
def suites(tmp_path, monkeypatch):
    """Write a suites folder, step into it and return a function that writes its suite."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "fake_deployment.py").write_text(FAKE)
    (folder / "conftest.py").write_text(CONFTEST.replace("FOLDER", repr(str(folder))))
    monkeypatch.setattr(cli, "SUITES", folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def write(counts="21"):
        _forget_modules()
        (folder / "test_needle.py").write_text(SUITE.replace("COUNTS", counts))
        return tmp_path

    yield write
    _forget_modules()


def _forget_modules():
    """Inner runs share this process: what one imported must not be what the next one tests."""
    for name in [name for name in sys.modules if name.endswith(("fake_deployment", "needle"))]:
        del sys.modules[name]


def records(folder="runs/latest"):
    return list(read_journal(Path(folder) / "run.jsonl"))


def test_run_names_the_deployment_first_and_repeats_itself(suites, capfd):
    suites()
    assert cli.main(["run", URL, "--seed", "4", "-k", "recall"]) == 0
    output = capfd.readouterr().out
    assert output.startswith("fidelity: measuring deployment 'url' (http://127.0.0.1:1/v1)")
    assert "repeat: fidelity run --base-url=http://127.0.0.1:1/v1 --seed 4 -k recall" in output
    manifest = records()[0]
    assert isinstance(manifest, Manifest)
    assert manifest.command[:2] == ("fidelity", "run")
    assert manifest.seed == 4


def test_exit_codes(suites, capfd):
    suites()
    assert cli.main(["run", URL, "needle"]) == 2  # one claim is inconclusive
    suites("21, 20")
    assert cli.main(["run", URL, "-k", "recall"]) == 1
    assert cli.main(["run", URL, "-k", "nothing_of_this_name"]) == 2
    assert cli.main(["run", URL, "needles"]) == 2
    assert "no suite named 'needles'; did you mean 'needle'?" in capfd.readouterr().err
    assert cli.main(["run", "--base-url=ftp://x"]) == 2
    assert "base-url" in capfd.readouterr().err


def test_plan_writes_nothing(suites, capfd):
    folder = suites()
    assert cli.main(["plan", URL]) == 0
    assert "all claims" in capfd.readouterr().out
    assert not (folder / "runs").exists()


def test_resume_continues_the_latest_run(suites):
    suites()
    cli.main(["run", URL])
    trials = sum(isinstance(record, Trial) for record in records())
    assert cli.main(["run", URL, "--resume"]) == 2
    assert sum(isinstance(record, Trial) for record in records()) == trials == 43


def test_report_renders_a_run_again(suites, capfd):
    suites()
    cli.main(["run", URL])
    page = Path("runs/latest/report.html")
    first = page.read_bytes()
    page.unlink()
    assert cli.main(["report", "runs/latest"]) == 0
    assert page.read_bytes() == first
    assert cli.main(["report", "nowhere"]) == 2
    assert "is no run folder" in capfd.readouterr().err


def test_replay_sends_one_trial_again_and_shows_both(suites, capfd):
    suites("21, 1")
    cli.main(["run", URL])
    before = Path("runs/latest/run.jsonl").read_bytes()
    wrong = next(r for r in records() if isinstance(r, Trial) and not r.ok)
    assert wrong.claim == "needle/recall"
    capfd.readouterr()
    assert cli.main(["replay", "runs/latest", wrong.id]) == 1
    output = capfd.readouterr().out
    assert f"trial {wrong.id} of needle/recall" in output
    assert "then: wrong" in output
    assert "now: wrong" in output
    suites()  # 21 right of 21: this trial is no longer asked by the suite
    assert cli.main(["replay", "runs/latest", wrong.id]) == 2
    suites("22")
    assert cli.main(["replay", "runs/latest", wrong.id]) == 0
    assert Path("runs/latest/run.jsonl").read_bytes() == before
    assert cli.main(["replay", "runs/latest", "t000000000000"]) == 2


def test_diff_pairs_claims_and_probes(suites, capfd):
    suites()
    cli.main(["run", URL, "--run-dir=one"])
    suites("10, 12")
    cli.main(["run", URL, "--run-dir=two"])
    capfd.readouterr()
    assert cli.main(["diff", "one", "two"]) == 1
    output = capfd.readouterr().out
    assert "needle/recall: pass (recall 1.000 [0.867, 1.000], n 21) -> fail (recall 0.455" in output
    assert "blame unknown" in output
    assert "same probes: 11 lost and 0 gained of 21" in output
    assert output.count("    lost: trial ") == 3
    assert "before: one" in output
    assert "undecided: 1 of 2 claims hold" in output
    assert cli.main(["diff", "two", "one"]) == 0
    assert cli.main(["diff", "one", "one"]) == 0
    assert "no claim and no probe differs" in capfd.readouterr().out
    assert cli.main(["diff", "one", "nowhere"]) == 2


def test_options_are_those_of_the_one_table(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["run", "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    for name in ("--base-url", "--launch-arg", "--budget", "--resume", "--allow", "--seed"):
        assert name in shown
    with pytest.raises(SystemExit) as stopped:
        cli.main(["run", "--seeds=1"])
    assert stopped.value.code == 2


def test_a_wheel_in_an_empty_folder_runs_its_own_suites(tmp_path):
    """The packages as a wheel holds them, copied to a path of their own, with nothing else."""
    root = Path(cli.__file__).resolve().parents[1]
    installed = tmp_path / "site-packages"
    installed.mkdir()
    for name in ("fidelity", "suites", "reports"):
        subprocess.run(["cp", "-r", str(root / name), str(installed)], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("FIDELITY_", "OPENAI_"))},
        "PYTHONPATH": str(installed),
    }
    command = [sys.executable, "-m", "fidelity.cli", "run", "--base-url=http://127.0.0.1:9/v1"]
    done = subprocess.run(
        [*command, "--model=x"],
        cwd=empty,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    held = list(read_journal(empty / "runs" / "latest" / "run.jsonl"))
    findings = [record for record in held if isinstance(record, Finding)]
    assert len(findings) == len(held[0].planned_claims) > 0
    assert {finding.outcome for finding in findings} == {"error"}
    assert held[0].git_commit == ""  # not this checkout: the copy was measured with
