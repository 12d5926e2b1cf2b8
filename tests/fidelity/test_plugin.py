"""The plugin, run by pytest inside pytest on a deployment in the same process."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import fidelity.deployment.deployment
import fidelity.runs.pytest_run
import reports
from fidelity.records import (
    Control,
    Finding,
    Manifest,
    PatchState,
    Trial,
    Verdict,
    read_journal,
)
from fidelity.words import Blame, Outcome

IMPORTED_ONCE = (fidelity.deployment.deployment, fidelity.runs.pytest_run, reports)
"""An inner pytest forgets what it is the first to import, and would import it each time."""
FAKE = (Path(__file__).parent / "fake_deployment.py").read_text(encoding="utf-8")
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


@pytest.fixture
def suites(pytester, monkeypatch):
    """Return a function that writes suites and a deployment beside them."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "GITHUB_STEP_SUMMARY", "CI"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(fake_deployment=FAKE)
    pytester.syspathinsert()

    def write(opening="return FakeDeployment()", **files):
        pytester.makeconftest(CONFTEST.format(body=opening))
        return pytester.makepyfile(**{f"test_{name}": body for name, body in files.items()})

    return write


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


def test_a_run_that_holds_exits_0_and_leaves_a_whole_folder(pytester, suites):
    suites(needle=GOOD)
    result = run(pytester)
    assert result.ret == 0
    held = records(pytester)
    assert isinstance(held[0], Manifest)
    assert held[0].planned_claims == ("needle/recall",)
    assert held[0].max_model_len == 4096
    assert held[0].settings
    assert verdict(pytester).sentence == "faithful on 1 of 1 claims"
    assert [r.name for r in held if isinstance(r, PatchState)] == ["index_keys"]
    assert [(r.control, r.ok) for r in held if isinstance(r, Control)] == [("positive", True)]
    found = findings(pytester)["needle/recall"]
    assert (found.k, found.n, len(found.trials)) == (22, 22, 22)
    assert found.minimum_detectable_effect
    folder = (pytester.path / "runs" / "latest").resolve()
    assert {"run.jsonl", "junit.xml", "report.html", "summary.md"} <= {
        path.name for path in folder.iterdir()
    }
    result.stdout.fnmatch_lines(
        [
            "fidelity: measuring deployment 'url' (http://127.0.0.1:1/v1)*",
            "pass           needle/recall",
            "*faithful on 1 of 1 claims*",
            f"report: {folder}/report.html",
            "repeat: pytest --fidelity-base-url=*",
        ]
    )


def test_every_ending_of_a_test_has_its_outcome_and_its_word(pytester, suites):
    suites(
        all="""
        import pytest
        from fake_deployment import probe, probes
        from fidelity.errors import CapabilityMissing, Violation

        def decide(measure, *counts):
            measure.rate_at_least(measure.ask(probes(*counts)), 0.80, title="t")

        def test_fails(measure): decide(measure, 10, 12)
        def test_is_open(measure): decide(measure, 10)
        def test_has_trouble(measure): decide(measure, 20, 0, 2)
        def test_cannot_be_asked(measure): measure.needs("logprobs")
        def test_is_skipped(measure): pytest.skip("not here")
        def test_claims_nothing(measure): measure.ask(probes(3))
        def test_is_broken(measure): raise KeyError("bug")
        def test_asserts(measure): assert 1 == 2
        def test_decides_by_hand(measure): raise Violation("the stream never ended")
        def test_breaks_in_a_probe(measure):
            async def script(ask): raise KeyError("bug in a probe")
            from fidelity.probes.probe import Probe
            measure.ask([Probe(family="f", key="k", script=script)])
        @pytest.fixture
        def broken(): raise RuntimeError("no fixture")
        def test_has_a_broken_fixture(measure, broken): pass
        """
    )
    result = run(pytester)
    outcomes = {name.partition("/")[2]: f.outcome for name, f in findings(pytester).items()}
    assert outcomes == {
        "fails": Outcome.FAIL,
        "is_open": Outcome.INCONCLUSIVE,
        "has_trouble": Outcome.ERROR,
        "cannot_be_asked": Outcome.NOT_APPLICABLE,
        "is_skipped": Outcome.NOT_APPLICABLE,
        "claims_nothing": Outcome.ERROR,
        "is_broken": Outcome.ERROR,
        "asserts": Outcome.ERROR,
        "decides_by_hand": Outcome.FAIL,
        "breaks_in_a_probe": Outcome.ERROR,
        "has_a_broken_fixture": Outcome.ERROR,
    }
    assert result.ret == 1
    assert result.parseoutcomes() == {
        "failed": 2,
        "inconclusive": 1,
        "errors": 6,
        "skipped": 2,
    }
    result.stdout.fnmatch_lines(["fail           all/fails", "not applicable all/is_skipped"])
    assert "KeyError: 'bug in a probe'" in findings(pytester)["all/breaks_in_a_probe"].reason


def test_a_dead_server_makes_every_claim_an_error(pytester, suites):
    suites(
        "raise LaunchError('nothing answers at http://127.0.0.1:9/v1')",
        needle=GOOD,
        other=GOOD.replace("recall", "other"),
    )
    result = run(pytester)
    assert result.ret == 2
    assert {f.outcome for f in findings(pytester).values()} == {Outcome.ERROR}
    assert len(findings(pytester)) == 2
    assert "nothing answers" in findings(pytester)["needle/recall"].reason
    assert isinstance(records(pytester)[0], Manifest)
    assert not [r for r in records(pytester) if isinstance(r, Trial)]
    assert result.parseoutcomes() == {"errors": 2}


def test_a_server_that_dies_is_left_alone_after_a_few_trials(pytester, suites):
    suites(
        many="""
        from fake_deployment import probes
        def test_first(measure):
            measure.rate_at_least(measure.ask(probes(0, 0, 100)), 0.80, title="t")
        def test_second(measure):
            measure.rate_at_least(measure.ask(probes(0, 0, 100)), 0.80, title="t")
        def test_third(measure):
            measure.rate_at_least(measure.ask(probes(22)), 0.80, title="t")
        """
    )
    assert run(pytester).ret == 2
    asked = [r.claim for r in records(pytester) if isinstance(r, Trial)]
    assert 8 <= asked.count("many/first") <= 12  # 8 in a row, and what was in flight
    assert asked.count("many/second") == 1
    assert asked.count("many/third") == 22  # the server is back
    assert "8 trials in a row could not be measured" in findings(pytester)["many/first"].reason
    assert findings(pytester)["many/third"].outcome is Outcome.PASS


def test_a_blind_control_makes_the_whole_suite_inconclusive(pytester, suites):
    suites(
        needle=GOOD.replace("False", "True")
        + """
def test_second(measure):
    measure.rate_at_least(measure.ask(probes(22)), 0.80, title="recall >= 0.80")
""",
        other=GOOD,
    )
    result = run(pytester)
    assert result.ret == 2
    assert result.parseoutcomes() == {"inconclusive": 1, "passed": 2}  # seen at once, then settled
    outcomes = {name: f.outcome for name, f in findings(pytester).items()}
    assert outcomes == {
        "needle/recall": Outcome.INCONCLUSIVE,
        "needle/second": Outcome.INCONCLUSIVE,
        "other/recall": Outcome.PASS,
    }


def test_a_promised_capability_that_is_absent_is_an_error_and_another_is_not_applicable(
    pytester, suites
):
    body = "def test_x(measure): measure.needs('logprobs')"
    suites("return FakeDeployment(expects=['logprobs'])", needle=body)
    assert run(pytester).ret == 2
    found = findings(pytester)["needle/x"]
    assert found.outcome is Outcome.ERROR
    assert "promises 'logprobs', and it is absent or unproven" in found.reason
    assert "--logprobs unlocks it" in found.reason
    suites(needle=body)
    assert run(pytester).ret == 2  # nothing could be measured at all
    assert findings(pytester)["needle/x"].outcome is Outcome.NOT_APPLICABLE


def test_a_promise_that_no_claim_needs_is_still_no_faithful_run(pytester, suites):
    suites("return FakeDeployment(expects=['chat', 'logprobs'])", needle=GOOD)
    assert run(pytester).ret == 2
    assert "absent or unproven: logprobs" in verdict(pytester).sentence


def test_a_required_claim_that_is_not_applicable_is_a_broken_promise(pytester, suites):
    suites(needle=GOOD + "\ndef test_x(measure): measure.needs('logprobs')\n")
    file = "default = 'a'\n[deployments.a]\nbase_url = 'http://127.0.0.1:1/v1'\n"
    (pytester.path / "fidelity.toml").write_text(file)
    assert pytester.runpytest_inprocess("-p", "no:cacheprovider").ret == 0
    (pytester.path / "fidelity.toml").write_text(file + "required = ['needle/x']\n")
    assert pytester.runpytest_inprocess("-p", "no:cacheprovider").ret == 2
    assert "absent or unproven: claim needle/x" in verdict(pytester).sentence


def test_traffic_that_was_not_allowed_is_not_applicable(pytester, suites):
    suites(
        needle=GOOD
        + """
from fidelity.words import Traffic
def test_burst(measure):
    measure.allow(Traffic.LOAD)
    measure.rate_at_least(measure.ask(probes(22)), 0.80, title="t")
"""
    )
    assert run(pytester).ret == 0
    assert "--fidelity-allow load" in findings(pytester)["needle/burst"].reason
    assert run(pytester, "--fidelity-allow=load").ret == 0
    assert findings(pytester)["needle/burst"].outcome is Outcome.PASS


def test_a_violation_raised_by_a_suite_is_blamed_on_the_deployment_unless_it_says_otherwise(
    pytester, suites
):
    suites(
        words="""
        from fidelity.errors import Violation
        from fidelity.words import Blame
        def test_promise(measure):
            raise Violation("usage is missing, though it was asked for")
        def test_weak(measure):
            raise Violation("the model does not count", blame=Blame.MODEL_LIMIT)
        """
    )
    assert run(pytester).ret == 1
    found = findings(pytester)
    assert found["words/promise"].blame is Blame.DEPLOYMENT
    assert found["words/weak"].blame is Blame.MODEL_LIMIT
    assert "the deployment is to blame" in verdict(pytester).sentence


def test_a_miss_opens_its_class_and_the_class_convicts(pytester, suites):
    suites(
        needle="""
        from fake_deployment import probe
        def damaged(residue): return residue != 3
        def test_recall(measure):
            sweep = [probe(i, damaged(i % 128), cell={"r": i % 128}) for i in range(256)]
            trials = measure.ask(sweep)
            opened = measure.open_classes(
                trials,
                lambda t: [f"residue_128={t.cell['r']}", "length=64"],
                lambda name, n: [probe(i, name != "residue_128=3") for i in range(n)],
            )
            measure.rate_at_least(trials, 0.95, title="recall >= 0.95")
        """
    )
    assert run(pytester).ret == 1
    found = findings(pytester)["needle/recall"]
    assert (found.outcome, found.blame) == (Outcome.FAIL, "deployment")
    assert "prompt length ≡ 3 (mod 128): 0 of 22 fresh probes right" in found.reason
    assert verdict(pytester).verdict == "unfaithful"
    second = [r for r in records(pytester) if isinstance(r, Trial) and r.stage == 2]
    assert {r.arm for r in second} == {"class residue_128=3"}  # convicted: no other was asked


def test_arms_are_asked_pair_by_pair_and_compared(pytester, suites):
    suites(
        turns="""
        from fake_deployment import probes
        def test_no_worse(measure):
            arms = measure.ask_arms({"": probes(10, 20), "control": probes(30)}, concurrency=1)
            assert [t.key for t in arms["control"]] == [str(i) for i in range(30)]
            measure.noninferior(arms[""], arms["control"], 0.10, title="no worse")
        """
    )
    assert run(pytester).ret == 1
    assert findings(pytester)["turns/no_worse"].blame == "deployment"
    order = [(r.key, r.arm) for r in records(pytester) if isinstance(r, Trial)]
    assert order[:4] == [("0", ""), ("0", "control"), ("1", ""), ("1", "control")]


def test_several_decisions_of_one_claim_are_given_together(pytester, suites):
    suites(
        turns="""
        from fake_deployment import probes
        def test_both(measure):
            trials = measure.ask(probes(10))
            measure.decide(
                measure.rate_finding(trials, 0.80, title="recall"),
                measure.all_true_finding(measure.ask(probes(3, 1), arm="leak"), title="no leak"),
            )
        def test_twice(measure):
            measure.all_true(measure.ask(probes(3)), title="a")
            measure.all_true(measure.ask(probes(3), arm="b"), title="b")
        """
    )
    assert run(pytester).ret == 1
    found = findings(pytester)
    assert found["turns/both"].outcome is Outcome.FAIL
    assert "no leak: 1 of 4 trials broke the claim" in found["turns/both"].reason
    assert found["turns/twice"].outcome is Outcome.ERROR
    assert "was decided already" in found["turns/twice"].reason


def test_two_probes_with_one_key_are_refused(pytester, suites):
    suites(
        needle="""
        from fake_deployment import probe
        def test_x(measure): measure.ask([probe("a"), probe("a")])
        """
    )
    assert run(pytester).ret == 2
    assert "two probes with the key 'a'" in findings(pytester)["needle/x"].reason


def test_random_numbers_depend_on_seed_claim_and_key_alone(pytester, suites):
    suites(
        needle="""
        from pathlib import Path
        from fake_deployment import probes
        def test_x(measure):
            with Path("drawn.txt").open("a") as out:
                out.write(f"{measure.rng('a').random()} {measure.rng('b').random()}\\n")
            measure.all_true(measure.ask(probes(3)), title="t")
        """
    )
    run(pytester)
    run(pytester)
    run(pytester, "--fidelity-seed=7")
    first, again, other = (pytester.path / "drawn.txt").read_text().splitlines()
    assert first == again != other
    assert len(set(first.split())) == 2


def test_a_restart_of_the_server_opens_an_epoch_and_spoils_the_trial_across_it(pytester, suites):
    suites(
        needle="""
        from fake_deployment import probe, probes
        from fidelity.probes.probe import Probe, ProbeResult
        async def restarting(ask):
            ask.client.epochs.epoch += 1
            return ProbeResult(ok=True)
        def test_x(measure):
            trials = measure.ask([probe("a"), Probe(family="f", key="r", script=restarting)])
            trials += measure.ask([probe("b")])
            assert [t.epoch for t in trials] == [0, 0, 1]
            measure.all_true(trials, title="t")
        """
    )
    assert run(pytester).ret == 2
    assert "restarted or changed its version" in findings(pytester)["needle/x"].reason
    assert [r.epoch for r in records(pytester) if isinstance(r, Manifest)] == [0, 1]


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


# what pytest's own options do


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


# stopping


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
