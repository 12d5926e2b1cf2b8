"""The plugin: which tests are claims of a run, and whose runs it leaves alone."""

from fidelity.words import Outcome
from tests.fidelity.plugin.inner import GOOD, findings, records, run, verdict


def test_selection_stop_and_collect_only_work_as_people_expect(pytester, suites):
    suites(
        needle=GOOD
        + """
import pytest
@pytest.mark.parametrize("length", [1, 2])
def test_bad(measure, length):
    measure.rate_at_least(measure.ask(probes(0, 22)), 0.80, title="recall")
""",
        other=GOOD,
    )
    assert run(pytester, "-k", "recall").ret == 0
    assert set(findings(pytester)) == {"needle/recall", "other/recall"}
    assert run(pytester, "test_other.py").ret == 0
    assert set(findings(pytester)) == {"other/recall"}
    assert run(pytester, "-x").ret == 1
    assert set(findings(pytester)) == {"needle/recall", "needle/bad[1]"}
    assert verdict(pytester).counts["not_run"] == 2
    newest = (pytester.path / "runs/latest").resolve()
    assert run(pytester, "--collect-only").ret == 0
    assert (pytester.path / "runs/latest").resolve() == newest


def test_marks_select(pytester, suites):
    suites(
        needle=GOOD.replace(
            "def test", "import pytest\n@pytest.mark.skipif(False, reason='x')\ndef test"
        )
    )
    assert run(pytester, "-m", "skipif").ret == 0
    assert run(pytester, "-m", "not skipif").ret == 2


def test_a_run_without_a_claim_is_an_error_in_words(pytester, suites):
    suites(needle=GOOD)
    result = run(pytester, "-k", "nothing_of_this_name")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*no claim was collected, nothing was measured*"])
    assert not (pytester.path / "runs").exists()


def test_two_tests_with_one_claim_are_refused(pytester, suites):
    suites(needle=GOOD)
    (pytester.path / "more").mkdir()
    (pytester.path / "more" / "test_needle.py").write_text(GOOD)
    result = run(pytester, "--import-mode=importlib")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*two tests make the claim needle/recall*"])


def test_xdist_is_refused_in_words(pytester, suites):
    suites(needle=GOOD)
    conftest = pytester.path / "conftest.py"
    conftest.write_text(
        conftest.read_text()
        + "\ndef pytest_addoption(parser):\n"
        + "    parser.addoption('--workers', dest='numprocesses', type=int)\n"
    )
    result = run(pytester, "--workers=2")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*one journal and one process, so xdist cannot split it*"])


def test_ordinary_tests_beside_claims_keep_their_meaning(pytester, suites):
    suites(needle=GOOD, plain="def test_a(): pass\ndef test_b(): assert 1 == 2")
    result = run(pytester)
    assert result.ret == 1
    assert verdict(pytester).verdict == "faithful"
    assert result.parseoutcomes() == {"passed": 2, "failed": 1}


def test_a_broken_suite_file_stops_before_anything_is_sent(pytester, suites):
    suites(needle=GOOD, broken="import nothing_of_this_name")
    assert run(pytester).ret == 2
    assert not (pytester.path / "runs").exists()


# runs of other people


def test_other_peoples_runs_see_nothing_of_the_plugin(pytester):
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef measure(): return 3")
    pytester.makepyfile("def test_a(measure): assert measure == 3\ndef test_b(): assert 0")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 1
    assert "fidelity:" not in result.stdout.str()
    assert not (pytester.path / "runs").exists()


def test_other_peoples_runs_do_not_import_the_harness(pytester):
    pytester.makepyfile(
        """
        import sys
        def test_a():
            heavy = {"scipy", "httpx", "rich", "jinja2", "msgspec", "fidelity.runs.run", "reports"}
            assert not heavy & set(sys.modules)
        """
    )
    assert pytester.runpytest_subprocess("-p", "no:cacheprovider").ret == 0


BESIDE = """
import pytest
from fake_deployment import probe, probes

@pytest.mark.fidelity_requires("golden")
def test_two_agree(measure):
    assert measure.golden is not None

def test_recall(measure):
    measure.control("positive", "cut", [probe(f"c{i}", False) for i in range(4)])
    measure.rate_at_least(measure.ask(probes(22)), 0.80, title="recall >= 0.80")
"""


def test_claims_that_need_a_golden_are_no_part_of_a_run_without_one(pytester, suites):
    suites(both=BESIDE)
    result = run(pytester)
    manifest = records(pytester)[0]
    assert manifest.planned_claims == ("both/recall",)
    assert list(manifest.left_out) == ["both/two_agree"]
    assert manifest.golden is None
    result.stdout.fnmatch_lines(["*1 claim needs a golden deployment*--fidelity-golden*no part*"])
    assert result.ret == 0


def test_a_golden_that_does_not_open_is_an_error_of_the_claims_that_need_it(pytester, suites):
    suites(both=BESIDE)
    result = run(pytester, "--fidelity-golden=http://127.0.0.1:1/v1")
    found = findings(pytester)
    assert found["both/two_agree"].outcome is Outcome.ERROR
    assert found["both/recall"].outcome is Outcome.PASS
    assert "127.0.0.1:1" in records(pytester)[0].golden.failure
    assert result.ret == 2


def test_nothing_but_such_claims_is_refused_in_words(pytester, suites):
    suites(both=BESIDE.partition("def test_recall")[0])
    result = run(pytester)
    assert result.ret == 2
    assert "nothing to measure: 1 claim needs a golden deployment" in result.stdout.str()
