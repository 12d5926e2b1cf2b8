"""The plugin: files beside the journal, and a disk that is full."""

from xml.etree import ElementTree as ET

import pytest

from tests.fidelity.plugin.inner import GOOD, run


def test_junit_has_a_case_a_claim_with_its_numbers(pytester, suites):
    suites(
        needle=GOOD
        + """
def test_open(measure):
    measure.rate_at_least(measure.ask(probes(10)), 0.80, title="recall")
def test_trouble(measure):
    measure.rate_at_least(measure.ask(probes(0, 0, 2)), 0.80, title="bad \\x00 text")
def test_absent(measure):
    measure.needs("logprobs")
"""
    )
    run(pytester)
    root = ET.parse(pytester.path / "runs/latest/junit.xml").getroot()  # noqa: S314 - ours
    suite = root[0]
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    cases = {case.get("name"): case for case in suite}
    numbers = {p.get("name"): p.get("value") for p in cases["recall"].find("properties")}
    assert (numbers["k"], numbers["n"], numbers["outcome"]) == ("22", "22", "pass")
    assert float(numbers["lower"]) == pytest.approx(0.05 ** (1 / 22))
    assert cases["open"].find("failure").get("type") == "inconclusive"
    assert cases["trouble"].find("error").get("type") == "error"
    assert "no logprobs" in cases["absent"].find("skipped").get("message")


def test_a_full_disk_at_the_end_is_no_failed_claim(pytester, suites, monkeypatch):
    def full(self, *, interrupted):
        raise OSError(28, "No space left on device")

    suites(recall=GOOD)
    monkeypatch.setattr("fidelity.runs.run.Run.finish", full)
    result = run(pytester)
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*could not be written to its end*No space left on device*"])


def test_a_report_that_cannot_be_written_hides_no_verdict(pytester, suites, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    suites(recall=GOOD)
    monkeypatch.setattr("fidelity.runs.files.write_junit", full)
    result = run(pytester)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*the report could not be written*No space left on device*"])
