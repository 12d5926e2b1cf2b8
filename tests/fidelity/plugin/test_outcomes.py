"""The plugin: which outcome, blame and exit code each way to end has."""

from fidelity.records import Control, Manifest, PatchState, Trial
from fidelity.words import Blame, Outcome
from tests.fidelity.plugin.inner import GOOD, findings, records, run, verdict


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
