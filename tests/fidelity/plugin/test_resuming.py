"""The plugin: runs that were killed, interrupted or finished are resumed."""

import signal
import subprocess
import sys
import time

import pytest

from fidelity.records import Manifest, PatchState, Trial, Verdict
from fidelity.words import Outcome
from tests.fidelity.plugin.inner import GOOD, URL, findings, records, run, verdict

SLOW = """
from fake_deployment import probe, probes
def test_quick(measure):
    measure.rate_at_least(measure.ask(probes(22)), 0.80, title="recall")
def test_slow(measure):
    slow = [probe(i, delay_s=0.05) for i in range(200)]
    measure.rate_at_least(measure.ask(slow, concurrency=4), 0.80, title="recall")
def test_broken(measure):
    measure.rate_at_least(measure.ask(probes(5, 17)), 0.80, title="recall")
"""


def start(pytester, *options):
    """Start pytest in a process of its own and wait until the slow claim is being asked."""
    command = [sys.executable, "-m", "pytest", URL, "-p", "no:hypothesispytest", *options]
    process = subprocess.Popen(
        command, cwd=pytester.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        path = pytester.path / "runs/latest/run.jsonl"
        if path.exists() and path.read_bytes().count(b'"claim":"slow/slow"') >= 20:
            return process
        time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate()[0])


def trial_ids(pytester, folder="runs/latest"):
    return [r.id for r in records(pytester, folder) if isinstance(r, Trial)]


def test_a_killed_run_resumes_to_the_verdict_of_an_unbroken_one(pytester, suites):
    suites(slow=SLOW)
    run(pytester, "--fidelity-run-dir=unbroken")
    process = start(pytester)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    before = trial_ids(pytester)
    with (pytester.path / "runs/latest/run.jsonl").open("ab") as stream:
        stream.write(b'{"kind":"trial","id":"torn')  # what a kill may leave
    assert 22 + 20 <= len(before) < 22 + 200
    result = run(pytester, "--fidelity-resume")
    after = trial_ids(pytester)
    assert result.ret == 1
    assert len(after) == len(set(after)) == 22 + 200 + 22
    assert after[: len(before)] == before
    assert sorted(after) == sorted(trial_ids(pytester, "unbroken"))
    resumed, unbroken = verdict(pytester), verdict(pytester, "unbroken")
    assert resumed.sentence == unbroken.sentence
    assert (resumed.counts, resumed.exit_code) == (unbroken.counts, unbroken.exit_code)
    assert (resumed.requests, resumed.prompt_tokens) == (unbroken.requests, unbroken.prompt_tokens)
    one, two = findings(pytester), findings(pytester, "unbroken")
    assert {n: (f.outcome, f.k, f.n, f.trials) for n, f in one.items()} == {
        n: (f.outcome, f.k, f.n, f.trials) for n, f in two.items()
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_and_marks_its_part_and_exits_130(pytester, suites, number):
    suites(slow=SLOW)
    process = start(pytester)
    process.send_signal(number)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 130, output
    last = verdict(pytester)
    assert last.interrupted
    assert last.sentence.startswith("interrupted after 1 of 3 claims")
    assert "interrupted after 1 of 3 claims" in output
    assert "resume: pytest" in output
    assert (pytester.path / "runs/latest/report.html").exists()
    assert run(pytester, "--fidelity-resume").ret == 1
    assert not verdict(pytester).interrupted
    assert len(trial_ids(pytester)) == len(set(trial_ids(pytester))) == 22 + 200 + 22


def test_a_finished_run_resumes_without_sending_anything(pytester, suites):
    suites(needle=GOOD)
    run(pytester)
    before = len(records(pytester))
    assert run(pytester, "--fidelity-resume").ret == 0
    kinds = [type(r) for r in records(pytester)[before:]]
    assert kinds == [Manifest, PatchState, Verdict]
    assert verdict(pytester).sentence == "faithful on 1 of 1 claims"


def test_trouble_of_an_earlier_epoch_is_asked_again_as_a_new_trial(pytester, suites):
    body = """
from fake_deployment import probes
def test_x(measure):
    measure.rate_at_least(measure.ask(probes(20, 0, TROUBLE)), 0.80, title="recall")
"""
    suites(needle=body.replace("TROUBLE", "2"))
    assert run(pytester).ret == 2
    fixed = body.replace("probes(20, 0, TROUBLE)", "probes(22)")
    (pytester.path / "test_needle.py").write_text(fixed)
    assert run(pytester, "--fidelity-resume").ret == 0
    trials = [r for r in records(pytester) if isinstance(r, Trial)]
    assert len({t.id for t in trials}) == len(trials) == 24
    assert sorted(t.index for t in trials) == [0] * 22 + [1] * 2
    assert findings(pytester)["needle/x"].n == 22


def test_pairs_that_a_kill_tore_apart_are_asked_anew_in_one_epoch(pytester, suites):
    body = """
from fake_deployment import probes
from fidelity.probes.probe import Probe
def test_x(measure):
    arms = {"": probes(30), "control": probes(30)}
    if STOP:
        async def stop(ask): raise KeyboardInterrupt
        arms["control"][10] = Probe(family="fake", key="10", script=stop)
    asked = measure.ask_arms(arms, concurrency=1)
    measure.noninferior(asked[""], asked["control"], 0.10, title="no worse")
"""
    suites(turns=body.replace("STOP", "True"))
    run(pytester)
    (pytester.path / "test_turns.py").write_text(body.replace("STOP", "False"))
    assert run(pytester, "--fidelity-resume").ret == 0
    found = findings(pytester)["turns/x"]
    assert (found.n, found.outcome) == (30, Outcome.PASS)
    trials = {r.id: r for r in records(pytester) if isinstance(r, Trial)}
    torn = [t for t in trials.values() if t.key == "10"]
    assert sorted((t.arm, t.epoch) for t in torn) == [("", 0), ("", 1), ("control", 1)]
    assert len(found.trials) == 60


def test_a_pair_with_a_restart_between_its_arms_is_asked_anew_on_resume(pytester, suites):
    body = """
from fake_deployment import probes
from fidelity.probes.probe import Probe, ProbeResult
async def restarting(ask):
    ask.client.epochs.epoch += RESTARTS
    return ProbeResult(ok=True)
def test_x(measure):
    arms = {"": probes(30), "control": probes(30)}
    arms[""].append(Probe(family="fake", key="last", script=restarting))
    arms["control"].append(Probe(family="fake", key="last", script=restarting))
    asked = measure.ask_arms(arms, concurrency=1)
    measure.noninferior(asked[""], asked["control"], 0.10, title="no worse")
"""
    suites(turns=body.replace("RESTARTS", "1"))
    assert run(pytester).ret == 2
    assert "could not be measured" in findings(pytester)["turns/x"].reason
    (pytester.path / "test_turns.py").write_text(body.replace("RESTARTS", "0"))
    assert run(pytester, "--fidelity-resume").ret == 0
    assert findings(pytester)["turns/x"].n == 31
    last = [r.epoch for r in records(pytester) if isinstance(r, Trial) and r.key == "last"]
    assert last == [0, 1, 3, 3]
