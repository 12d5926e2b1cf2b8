"""`fidelity micro`: microtests in a process of their own, and the run that is made of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from fidelity import cli
from fidelity.microtests.findings import finding_of, line_of, state_of, verdict_of
from fidelity.microtests.judge import CALLS
from fidelity.microtests.results import HARVESTED, Check, PatchReport, Scope
from fidelity.microtests.verdict_files import save
from fidelity.records import Finding, Manifest, PatchState, Verdict, read_journal
from fidelity.words import Ladder, Outcome, PatchVerdict, Question, RunVerdict

SCOPE = Scope(code="c", dtype="bf16", shapes=("x[4]",), data="synthetic", device="cpu")
CHECKS = (
    Check(question=Question.IMPLEMENTATION, name="largest error", value=0.5, limit=2, holds=True),
    Check(question=Question.FORMAT, name="KL", value=0.01, limit=0.05, holds=True),
    Check(question=Question.PROOF, name=CALLS, value=7, holds=True),
)
FAKE = """
import pathlib, sys
import pytest

def pytest_collection_finish(session):
    folder = pathlib.Path(session.config.getoption("fidelity_run_dir")) / "patches"
    folder.mkdir(parents=True)
    for path in pathlib.Path(r"{verdicts}").glob("*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    pathlib.Path(r"{verdicts}", "seen.txt").write_text(
        "\\n".join([str(pathlib.Path.cwd()), *sys.argv, sys.path[0]])
    )
"""


def report(name="p", verdict=PatchVerdict.EXONERATED, **more):
    given = {"ladder": Ladder.ROUNDING, "reason": "because", "checks": CHECKS} | more
    return PatchReport(name=name, verdict=verdict, scope=SCOPE, **given)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """`checkout(*reports, test=...)`: a folder whose microtests come to these verdicts."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    root = tmp_path / "checkout"
    (root / "suites" / "patches").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    verdicts = tmp_path / "verdicts"
    verdicts.mkdir()
    monkeypatch.setattr(cli, "SUITES", root / "suites")
    monkeypatch.chdir(tmp_path)

    def make(*reports, test="def test_it():\n    pass\n"):
        for path in verdicts.glob("*.json"):
            path.unlink()
        for one in reports:
            save(one, verdicts)
        folder = root / "suites" / "patches"
        (folder / "conftest.py").write_text(FAKE.format(verdicts=verdicts))
        (folder / "test_p.py").write_text(test)
        return verdicts / "seen.txt"

    return make


def records(folder="runs/latest"):
    return list(read_journal(Path(folder) / "run.jsonl"))


@pytest.mark.parametrize(
    ("verdict", "code", "outcome"),
    [
        (PatchVerdict.EXONERATED, 0, Outcome.PASS),
        (PatchVerdict.CONVICTED, 1, Outcome.FAIL),
        (PatchVerdict.INERT, 2, Outcome.ERROR),
        (PatchVerdict.UNDECIDED, 2, Outcome.INCONCLUSIVE),
    ],
)
def test_each_verdict_has_its_exit_code_outcome_and_line(checkout, capfd, verdict, code, outcome):
    checkout(report(verdict=verdict, value="int4,row"))
    assert cli.main(["micro"]) == code
    output = capfd.readouterr().out
    assert f"{verdict:<11} p=int4,row on synthetic inputs (rounding): " in output
    assert "implementation: largest error 0.5 (limit 2); choice of format: KL 0.01" in output
    manifest, finding, state, last = records()
    assert isinstance(manifest, Manifest)
    assert manifest.command == ("fidelity", "micro")
    assert isinstance(finding, Finding)
    assert (finding.claim, finding.outcome) == ("patches/p=int4,row", outcome)
    assert isinstance(state, PatchState)
    assert state.calls == 7
    assert isinstance(last, Verdict)
    assert last.exit_code == code
    case = ET.parse("runs/latest/junit.xml").getroot().find("testsuite/testcase")  # noqa: S314
    assert case is not None
    assert case.get("name") == "p=int4,row"
    assert "because" in Path("runs/latest/report.html").read_text()


def test_one_conviction_among_the_exonerated_is_a_fail_and_comes_first(checkout, capfd):
    synthetic = report(value="int4")
    harvested = report(verdict=PatchVerdict.CONVICTED, value="int4", source=HARVESTED)
    checkout(synthetic, harvested, report("a"))
    assert cli.main(["micro"]) == 1
    lines = capfd.readouterr().out.splitlines()
    verdicts = [
        line.split()[0] for line in lines if " inputs (" in line and "fidelity:" not in line
    ]
    assert verdicts == ["convicted", "exonerated", "exonerated"]
    assert "1 convicted on harvested inputs (p=int4), 2 exonerated on synthetic inputs" in lines[-2]
    page = Path("runs/latest/report.html").read_text()
    assert "Convicted: p=int4 on harvested inputs." in page


def test_the_process_runs_in_the_checkout_with_absolute_paths(checkout, tmp_path):
    seen = checkout(report())
    (tmp_path / "dumps").mkdir()
    words = ["--patch=p=int4", "--inputs=dumps", "--device=cpu", "--seed=3", "--run-dir=mine"]
    assert cli.main(["micro", *words]) == 0
    cwd, *arguments = seen.read_text().splitlines()
    assert cwd == str(tmp_path / "checkout")
    told = "1 exonerated on synthetic inputs; synthetic inputs only, since a dump does not hold"
    assert records("mine")[-1].sentence.startswith(told)
    assert arguments[-1] == cwd  # first on the path: its `kernels` is ours
    assert f"--fidelity-inputs={tmp_path / 'dumps'}" in arguments
    assert f"--fidelity-run-dir={tmp_path / 'mine'}" in arguments
    assert {"--fidelity-patch=p=int4", "--fidelity-device=cpu", "--fidelity-seed=3"} <= set(
        arguments
    )
    chosen = {s.name: (s.value, s.origin) for s in records("mine")[0].settings}
    assert chosen["patch"] == ("p=int4", "flag --patch")
    assert chosen["checkpoint"][1] == "default"
    assert not Path("runs").exists()


def test_a_process_that_breaks_is_undecided_and_says_so(checkout, capfd):
    checkout(test="raise RuntimeError('no such kernel')\n")
    assert cli.main(["micro"]) == 2
    captured = capfd.readouterr()
    assert "no such kernel" in captured.out
    assert "no patch was examined; pytest ended with exit code 2" in captured.out
    assert records()[-1].verdict is RunVerdict.UNDECIDED


def test_verdicts_are_kept_beside_the_runs_and_expire(checkout, capfd):
    checkout(report(at="2026-01-01T00:00:00+00:00"))
    assert cli.main(["micro"]) == 0
    assert "before:" not in capfd.readouterr().out
    assert Path("runs/patches/p.json").exists()
    checkout(report())
    cli.main(["micro"])
    assert "before: exonerated on 2026-01-01T00:00:00+00:00; in force" in capfd.readouterr().out
    checkout(msgspec.structs.replace(report(), scope=msgspec.structs.replace(SCOPE, code="d")))
    cli.main(["micro"])
    assert "expired: code changed" in capfd.readouterr().out


def test_a_run_folder_that_is_taken_is_refused(checkout, capfd):
    checkout(report())
    assert cli.main(["micro", "--run-dir=mine"]) == 0
    assert cli.main(["micro", "--run-dir=mine"]) == 2
    assert "already holds a run" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--inputs=nowhere"], "--inputs nowhere: there is no such folder"),
        (["--checkpoint=nowhere"], "--checkpoint nowhere: there is no such folder"),
        (["--device=tpu"], "flag --device: expected"),
    ],
)
def test_bad_usage_is_refused_before_anything_is_written(checkout, capfd, words, told):
    checkout(report())
    assert cli.main(["micro", *words]) == 2
    assert told in capfd.readouterr().err
    assert not Path("runs").exists()


def test_without_a_checkout_it_is_refused_in_one_sentence(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(cli, "SUITES", tmp_path / "suites")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["micro"]) == 2
    told = capfd.readouterr().err
    assert "fidelity: microtests need a checkout of the project" in told
    assert len(told.splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize("flag", ["--patch=p", "--checkpoint=.", "--inputs=.", "--device=cpu"])
def test_other_commands_refuse_what_only_microtests_take(monkeypatch, tmp_path, capfd, flag):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "--base-url=http://127.0.0.1:1/v1", flag]) == 2
    assert "only microtests (fidelity micro) take it" in capfd.readouterr().err


def test_micro_takes_only_what_microtests_know(capfd):
    with pytest.raises(SystemExit):
        cli.main(["micro", "--base-url=http://127.0.0.1:1/v1"])
    assert "unrecognized arguments: --base-url" in capfd.readouterr().err


def test_a_real_patch_is_exonerated(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["micro", "--patch=default_thinking"]) == 0
    assert "exonerated  default_thinking on synthetic inputs (exact)" in capfd.readouterr().out


def test_an_unknown_patch_is_refused_by_name(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["micro", "--patch=mhc_fp8"]) == 2
    captured = capfd.readouterr()
    assert "no microtest of mhc_fp8; there are default_thinking, fp8_kv" in (
        captured.out + captured.err
    )


def test_a_value_that_a_microtest_does_not_take_is_not_ignored(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["micro", "--patch=default_thinking=off"]) == 2
    output = capfd.readouterr().out
    assert "undecided   default_thinking=off on synthetic inputs" in output
    assert "the microtest of default_thinking takes no value, and off was asked for" in output


SLOW = """
import time

def test_it():
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_is_kept_and_marked(checkout, tmp_path, number):
    seen = checkout(report(), test=SLOW)
    code = (
        "import sys, pathlib, fidelity.cli as cli;"
        f"cli.SUITES = pathlib.Path({str(tmp_path / 'checkout' / 'suites')!r});"
        "sys.exit(cli.main(['micro', '--run-dir=mine']))"
    )
    # in a group of its own, so that Ctrl-C reaches both processes as a terminal would send it
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    deadline = time.monotonic() + 60
    while not seen.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.wait(60) == 130
    last = records("mine")[-1]
    assert isinstance(last, Verdict)
    assert (last.interrupted, last.exit_code) == (True, 130)
    assert "1 exonerated on synthetic inputs; interrupted" in last.sentence
    assert "Partial result" in Path("mine/report.html").read_text()


def test_records_of_a_patch_that_never_ran():
    inert = report(verdict=PatchVerdict.INERT, ladder=None, checks=(), reason="never ran")
    assert finding_of(inert).outcome is Outcome.ERROR
    assert line_of(inert) == "inert       p on synthetic inputs (-): never ran"
    assert state_of([inert]).calls is None
    last = verdict_of([inert, report()], trouble="", interrupted=True, duration_s=1.0)
    assert (last.exit_code, last.verdict) == (130, RunVerdict.UNDECIDED)
