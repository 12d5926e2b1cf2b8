"""The fault of the case, from a running engine to a conviction: synthetic inputs cannot see it."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_engine import dumped

from fidelity.records import Finding, read_journal
from fidelity.words import Ladder, Outcome

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]


def micro(*words, folder):
    command = [sys.executable, "-m", "fidelity.cli", "micro", *words, f"--run-dir={folder}"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def findings(folder):
    found = [r for r in read_journal(folder / "run.jsonl") if isinstance(r, Finding)]
    return {finding.claim: finding for finding in found}


@pytest.fixture(scope="module")
def outlier(tmp_path_factory):
    return dumped(tmp_path_factory.mktemp("outlier"), "--index-outlier=256")


def test_int4_rows_are_convicted_on_the_engines_own_keys_alone(outlier, tmp_path):
    done = micro("--patch=index_keys=int4,row", f"--inputs={outlier}", folder=tmp_path / "run")
    assert done.returncode == 1, done.stdout + done.stderr
    found = findings(tmp_path / "run")
    assert found["patches/index_keys=int4,row"].outcome is Outcome.PASS
    convicted = found["patches/index_keys=int4,row.harvested"]
    assert (convicted.outcome, convicted.ladder) == (Outcome.FAIL, Ladder.SELECTION)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Convicted: index_keys=int4,row on harvested inputs." in page
    assert "synthetic: 5 of 5 needles kept" in page


def test_bf16_keys_are_exonerated_on_the_same_inputs(outlier, tmp_path):
    done = micro("--patch=index_keys=bf16", f"--inputs={outlier}", folder=tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_patches_are_exonerated_on_the_plain_engine(tmp_path):
    inputs = dumped(tmp_path / "plain")
    done = micro(f"--inputs={inputs}", folder=tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    found = findings(tmp_path / "run")
    assert len(found) == 20  # eleven patches, nine of them on harvested inputs too
    assert {finding.outcome for finding in found.values()} == {Outcome.PASS}
