"""The first run of a new user: the embedded engine without a fault is faithful, and cheap."""

import pytest
from product import finished

from fidelity.words import Outcome, RunVerdict

pytestmark = pytest.mark.acceptance

LENGTHS_TOKENS = {256, 512, 1_024, 2_048, 4_096, 8_192}
REPORT_BYTES = 2_000_000
PEAK_BYTES = 2 * 2**30


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean") / "run"
    return finished("--deployment=embedded", folder=folder, name="no fault")


def test_an_engine_without_a_fault_is_faithful(ran):
    assert ran.code == 0, ran.told()
    assert ran.verdict.verdict is RunVerdict.FAITHFUL
    assert set(ran.findings) == set(ran.planned)
    assert ran.outcomes() == {Outcome.PASS: len(ran.planned)}, ran.told()
    assert ran.verdict.blame is None
    assert "faithful" in ran.report


def test_recall_is_high_at_each_length_and_over_all(ran):
    needles = [
        trial
        for trial in ran.trials
        if trial.suite == "needle_sweep" and trial.stage == 1 and trial.arm == ""
    ]
    assert all(trial.ok is not None for trial in needles)
    recall = {
        length: [t.ok for t in needles if t.cell["length_tokens"] == length]
        for length in {t.cell["length_tokens"] for t in needles}
    }
    assert set(recall) >= LENGTHS_TOKENS
    for length in LENGTHS_TOKENS:
        answers = recall[length]
        assert len(answers) >= 14, length
        assert sum(answers) / len(answers) >= 0.80, length
    assert len(needles) >= 59
    assert sum(t.ok for t in needles) / len(needles) >= 0.95
    asked = [t.exchanges[-1].prompt_tokens for t in needles]
    assert max(asked) >= 8_000


def test_report_and_memory_stay_small(ran):
    assert 10_000 < (ran.folder / "report.html").stat().st_size <= REPORT_BYTES
    assert 100 * 2**20 < ran.peak_bytes <= PEAK_BYTES


def test_no_process_outlives_the_run(ran):
    assert ran.left_behind == frozenset()
