"""Every fault of the embedded engine turns exactly the suites red that its file names."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from product import ROOT, clean_environ, finished

from fidelity.words import Outcome, RunVerdict

pytestmark = pytest.mark.acceptance

FILES = sorted((ROOT / "engine" / "faults").glob("[a-z]*.py"))
ELSEWHERE = ("\nTWINS = ", "\nLAUNCH = ")
NAMES = [p.stem for p in FILES if not any(n in p.read_text(encoding="utf-8") for n in ELSEWHERE)]
"""Those made for twins are run against the twins (test_twin_faults.py), those that need a server of
their own against the suite that sees them there (test_stateful_faults.py)."""
LANES = 2
"""Runs at once: the engine computes on one core, the harness needs little."""


@pytest.fixture(scope="module")
def listed():
    """What `python -m engine faults --json` prints, by name."""
    printed = subprocess.run(
        [sys.executable, "-m", "engine", "faults", "--json"],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        timeout=120,
        check=True,
    )
    return {fault["name"]: fault for fault in json.loads(printed.stdout)}


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """One run of all suites for each fault that was selected, as futures by name."""
    folder = tmp_path_factory.mktemp("faults")
    chosen = [item.callspec.params["name"] for item in request.session.items if _asks_runs(item)]

    def run(name):
        return finished(
            "--deployment=embedded",
            f"--launch-arg=--fault={name}",
            folder=folder / name,
            name=f"fault {name}",
        )

    with ThreadPoolExecutor(LANES) as lanes:
        futures = {name: lanes.submit(run, name) for name in dict.fromkeys(chosen)}
        yield futures
        for future in futures.values():
            future.cancel()


def _asks_runs(item):
    return item.path == Path(__file__) and "runs" in item.fixturenames


def test_every_fault_file_is_listed(listed):
    assert sorted(listed) == [path.stem for path in FILES]
    assert all(fault["suites"] for fault in listed.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_turns_the_suites_red_that_it_names_and_no_other(name, listed, runs):
    ran = runs[name].result()
    expected, faint = set(listed[name]["suites"]), set(listed[name]["faint_suites"])
    failing = ran.suites_with(Outcome.FAIL)
    assert failing - faint == expected, ran.told()
    undecided = ran.suites_with(Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.NOT_APPLICABLE)
    assert undecided <= expected | faint, ran.told()
    assert faint <= failing | undecided, ran.told()
    assert not ran.suites_with(Outcome.ERROR), ran.told()
    assert ran.code == 1
    assert ran.verdict.verdict is RunVerdict.UNFAITHFUL, ran.verdict.sentence
    assert set(ran.findings) == set(ran.planned)
    # the server itself says nothing of it
    manifest = ran.records[0]
    log = (ran.folder / "server.log").read_text(encoding="utf-8")
    assert name not in f"{manifest.server_info} {manifest.capabilities} {log}"
