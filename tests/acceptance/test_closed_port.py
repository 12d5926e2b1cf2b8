"""A server that is not there: nothing is measured, so nothing passes and nothing fails."""

import xml.etree.ElementTree as ET

import pytest
from product import BIN, Running

from fidelity.words import Outcome, RunVerdict

pytestmark = pytest.mark.acceptance


def test_behind_a_closed_port_every_claim_is_an_error(tmp_path):
    words = [
        str(BIN / "pytest"),
        "suites",
        "--fidelity-base-url",
        "http://127.0.0.1:9/v1",
        "--fidelity-model",
        "x",
        f"--fidelity-run-dir={tmp_path / 'run'}",
    ]
    with Running(words, folder=tmp_path / "run", name="closed port", environ=None) as running:
        ran = running.end()
    assert ran.code == 2, ran.output[-2_000:]
    assert len(ran.planned) > 20
    assert set(ran.findings) == set(ran.planned)
    assert ran.outcomes() == {Outcome.ERROR: len(ran.planned)}
    assert all("127.0.0.1:9" in finding.reason for finding in ran.findings.values())
    assert ran.verdict.verdict is RunVerdict.UNDECIDED
    assert ran.trials == []
    last_line = ran.output.rstrip().splitlines()[-1]
    assert f"{len(ran.planned)} error" in last_line
    assert "passed" not in last_line
    assert "failed" not in last_line
    cases = ET.parse(tmp_path / "run" / "junit.xml").getroot().findall(".//testcase")  # noqa: S314 - our own file
    assert len(cases) == len(ran.planned)
    assert all(case.find("error") is not None for case in cases)
    assert all(case.find("failure") is None for case in cases)
