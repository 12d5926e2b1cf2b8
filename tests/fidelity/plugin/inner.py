"""pytest inside pytest, on a deployment in the same process: how it is run and read."""

from pathlib import Path

import fidelity.deployment.deployment
import fidelity.runs.pytest_run
import reports
from fidelity.records import Finding, Verdict, read_journal

IMPORTED_ONCE = (fidelity.deployment.deployment, fidelity.runs.pytest_run, reports)
"""An inner pytest forgets what it is the first to import, and would import it each time."""
FAKE = (Path(__file__).parents[1] / "fake_deployment.py").read_text(encoding="utf-8")
CONFTEST = """
from fake_deployment import FakeDeployment
from fidelity.errors import LaunchError

def pytest_fidelity_open_deployment(settings, run_dir):
    async def opening():
        {body}
    return opening()
"""
URL = "--fidelity-base-url=http://127.0.0.1:1/v1"
GOOD = """
from fake_deployment import probe, probes

def test_recall(measure):
    '''Facts are found. At every depth.'''
    measure.control("positive", "the fact is cut out", [probe(f"c{i}", False) for i in range(4)])
    measure.rate_at_least(measure.ask(probes(22)), 0.80, title="recall >= 0.80")
"""


def run(pytester, *options):
    plugins = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # each costs seconds
    return pytester.runpytest_inprocess(URL, *plugins, *options)


def records(pytester, folder="runs/latest"):
    return list(read_journal(pytester.path / folder / "run.jsonl"))


def findings(pytester, folder="runs/latest"):
    return {r.claim: r for r in records(pytester, folder) if isinstance(r, Finding)}


def verdict(pytester, folder="runs/latest"):
    last = records(pytester, folder)[-1]
    assert isinstance(last, Verdict)
    return last
