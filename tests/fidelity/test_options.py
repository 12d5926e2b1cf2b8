"""One test per flag that the run itself answers for; how flags are read is tested elsewhere."""

import json
from pathlib import Path

import pytest

import fidelity.deployment.deployment
import fidelity.runs.pytest_run
import reports
from fidelity.records import Finding, Manifest, Trial, Verdict, read_journal
from fidelity.words import Outcome

IMPORTED_ONCE = (fidelity.deployment.deployment, fidelity.runs.pytest_run, reports)
"""An inner pytest forgets what it is the first to import, and would import it each time."""
FAKE = (Path(__file__).parent / "fake_deployment.py").read_text(encoding="utf-8")
CONFTEST = """
import os
from fake_deployment import FakeDeployment

def pytest_fidelity_open_deployment(settings, run_dir):
    async def opening():
        (run_dir / "server.log").write_text("opened")
        return FakeDeployment(model=settings.model or "fake-model")
    return opening()
"""
SUITE = """
from pathlib import Path
from fake_deployment import probe, probes

def test_recall(measure):
    n = measure.trials_planned(quick=22, standard=59, deep=93)
    measure.rate_at_least(measure.ask(probes(n)), 0.80, title="recall >= 0.80")

def test_other(measure):
    measure.rate_at_least(measure.ask(probes(22)), 0.80, title="recall >= 0.80")
"""
URL = "--fidelity-base-url=http://127.0.0.1:1/v1"


@pytest.fixture
def run(pytester, monkeypatch):
    """Return a function that runs the suite with more options."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "GITHUB_STEP_SUMMARY", "CI"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(fake_deployment=FAKE, test_needle=SUITE)
    pytester.makeconftest(CONFTEST)
    pytester.syspathinsert()

    def runs(*options):
        plugins = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
        return pytester.runpytest_inprocess(*plugins, URL, *options)

    return runs


def records(pytester, folder="runs/latest"):
    return list(read_journal(pytester.path / folder / "run.jsonl"))


def of_kind(pytester, kind, folder="runs/latest"):
    return [record for record in records(pytester, folder) if isinstance(record, kind)]


def test_run_dir_is_the_folder_of_the_run(pytester, run):
    assert run("--fidelity-run-dir=deep/down").ret == 0
    assert of_kind(pytester, Verdict, "deep/down")
    assert (pytester.path / "deep/down/server.log").exists()
    assert not (pytester.path / "runs").exists()
    again = run("--fidelity-run-dir=deep/down")
    assert again.ret == 2
    again.stdout.fnmatch_lines(["*already holds a run: pass --fidelity-resume*"])


def test_a_run_dir_under_runs_is_the_latest(pytester, run):
    run("--fidelity-run-dir=runs/mine")
    assert (pytester.path / "runs/latest").resolve() == (pytester.path / "runs/mine").resolve()


def test_resume_without_a_run_is_refused(pytester, run):
    result = run("--fidelity-resume")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*holds no run to resume*"])


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--fidelity-seed=7", "seed was '0' and is '7' now"),
        ("--fidelity-budget=deep", "budget was 'quick' and is 'deep' now"),
        ("--fidelity-model=other", "model was '' and is 'other' now"),
        ("--fidelity-allow=load", "allow was"),
        ("--fidelity-launch-arg=--fault=x", "launch_arg was"),
        ("-k=recall", "it planned 2 claims and this selection has 1"),
    ],
)
def test_resume_with_another_question_is_refused_in_one_sentence(pytester, run, option, sentence):
    run()
    before = (pytester.path / "runs/latest/run.jsonl").read_bytes()
    result = run("--fidelity-resume", option)
    assert result.ret == 2
    result.stdout.fnmatch_lines([f"*cannot resume *: *{sentence}*"])
    assert (pytester.path / "runs/latest/run.jsonl").read_bytes() == before


def test_resume_of_another_deployment_is_refused(pytester, run):
    run()
    # the later flag counts
    result = run("--fidelity-resume", "--fidelity-base-url=http://127.0.0.1:2/v1")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*cannot resume *: base_url was 'http://127.0.0.1:1/v1'*"])


def test_resume_with_a_server_that_serves_another_model_now_is_refused(pytester, run):
    run()
    pytester.makeconftest(CONFTEST.replace('"fake-model"', '"new-model"'))
    result = run("--fidelity-resume")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*measured the model 'fake-model'*now serves 'new-model'*"])


def test_caps_may_change_on_resume(run):
    run()
    assert (
        run("--fidelity-resume", "--fidelity-concurrency=2", "--fidelity-max-requests=9").ret == 0
    )


def test_budget_changes_the_number_of_trials_and_no_threshold(pytester, run):
    counts = {}
    for budget in ("quick", "standard", "deep"):
        run(f"--fidelity-budget={budget}", "-k=recall")
        found = of_kind(pytester, Finding)[-1]
        counts[budget] = (found.n, found.threshold)
    assert counts == {"quick": (22, 0.8), "standard": (59, 0.8), "deep": (93, 0.8)}


def test_seed_and_model_reach_the_manifest_and_the_trials(pytester, run):
    run("--fidelity-seed=7", "--fidelity-model=m2")
    manifest = records(pytester)[0]
    assert (manifest.seed, manifest.model) == (7, "m2")
    assert {trial.seed for trial in of_kind(pytester, Trial)} == {7}
    origins = {s.name: (s.value, s.origin) for s in manifest.settings}
    assert origins["seed"] == ("7", "flag --seed")
    ids = {trial.id for trial in of_kind(pytester, Trial)}
    run("--fidelity-seed=8")
    assert not ids & {trial.id for trial in of_kind(pytester, Trial)}


def test_concurrency_is_how_many_trials_are_in_flight(pytester, run):
    pytester.makepyfile(
        test_needle="""
        import anyio
        from pathlib import Path
        from fidelity.probes.probe import Probe, ProbeResult
        flying, most = 0, 0
        async def script(ask):
            global flying, most
            flying += 1
            most = max(most, flying)
            await anyio.sleep(0.01)
            flying -= 1
            return ProbeResult(ok=True)
        def test_x(measure):
            global most
            probes = [Probe(family="f", key=str(i), script=script) for i in range(20)]
            trials = measure.ask(probes)
            assert [t.key for t in trials] == [str(i) for i in range(20)]
            first, most = most, 0
            more = [Probe(family="f", key=f"b{i}", script=script) for i in range(20)]
            trials += measure.ask(more, concurrency=2)
            Path("most.txt").write_text(f"{first} {most}")
            measure.all_true(trials, title="t")
        """
    )
    assert run("--fidelity-concurrency=5").ret == 0
    assert (pytester.path / "most.txt").read_text() == "5 2"


def test_a_note_on_the_scope_stands_in_the_finding(pytester, run):
    pytester.makepyfile(
        test_needle="""
        from fake_deployment import probe
        def test_x(measure):
            measure.note("lengths of 4,096 tokens were not asked")
            measure.note("")
            measure.all_true(measure.ask([probe("a")]), title="t")
        """
    )
    assert run().ret == 0
    (found,) = of_kind(pytester, Finding)
    assert found.reason.endswith("; lengths of 4,096 tokens were not asked")


def test_max_time_leaves_the_rest_inconclusive(pytester, run):
    pytester.makepyfile(
        test_needle="""
        from fake_deployment import probe
        def test_x(measure):
            slow = [probe(i, delay_s=0.05) for i in range(1000)]
            measure.all_true(measure.ask(slow), title="t")
        def test_y(measure):
            measure.all_true(measure.ask([probe("a")]), title="t")
        """
    )
    assert run("--fidelity-max-time-s=1").ret == 2
    found = {f.claim: f for f in of_kind(pytester, Finding)}
    assert {f.outcome for f in found.values()} == {Outcome.INCONCLUSIVE}
    assert "time cap of 1 s" in found["needle/y"].reason
    assert 0 < len(of_kind(pytester, Trial)) < 1000


def test_plan_sends_nothing_and_says_what_a_run_would_cost(pytester, run):
    pytester.makepyfile(
        test_needle="""
        from fake_deployment import probe, probes
        def test_x(measure):
            measure.needs("logprobs")
            trials = measure.ask(probes(22))
            assert len(trials) == 22
            measure.control("positive", "cut", [probe("c", False)])
            arms = measure.ask_arms({"a": probes(3), "b": probes(3)})
            assert len(arms["b"]) == 3
            measure.rate_at_least(trials, 0.80, title="t")
        def test_y(measure):
            measure.all_true(measure.ask(probes(5)), title="t")
        """
    )
    result = run("--fidelity-plan")
    assert result.ret == 0
    result.stdout.re_match_lines(
        [r"needle/x +29 +29 +2,900 .*", r"needle/y +5 +5 +500 .*", r"all claims +34 +34 +3,400 .*"]
    )
    assert not (pytester.path / "runs").exists()


def test_a_wrong_value_is_bad_usage_before_anything_is_written(pytester, run):
    result = run("--fidelity-budget=huge")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*budget*quick, standard, deep*"])
    assert not (pytester.path / "runs").exists()


def test_ci_gets_the_summary(pytester, run, monkeypatch):
    target = pytester.path / "step.md"
    target.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    run()
    assert target.read_text().startswith("before\n")
    assert "aithful on 2 of 2 claims" in target.read_text()


def test_no_key_reaches_the_run_folder(pytester, run, monkeypatch):
    key = "sk-very-secret-value-0123456789"
    monkeypatch.setenv("MY_KEY", key)
    pytester.makepyfile(
        test_needle=f"""
        from fake_deployment import probe
        def test_x(measure):
            leaking = [probe("a", text="your key is {key}"), probe("b", "refused {key}")]
            measure.all_true(measure.ask(leaking), title="t")
        """
    )
    run("--fidelity-api-key-env=MY_KEY", f"--fidelity-launch-arg=--api-key={key}")
    for path in (pytester.path / "runs").rglob("*"):
        if path.is_file():
            assert key not in path.read_text(encoding="utf-8"), path
    texts = [e.text for t in of_kind(pytester, Trial) for e in t.exchanges]
    assert texts == ["your key is [redacted]"]


def test_the_manifest_is_enough_to_repeat_the_run(pytester, run):
    run("--fidelity-run-dir=one", "--fidelity-seed=3")
    line = (pytester.path / "one/run.jsonl").read_text().splitlines()[0]
    command = json.loads(line)["command"]
    assert command[0] == "pytest"
    assert "--fidelity-seed=3" in command
    assert not [word for word in command if "run-dir" in word]
    assert isinstance(records(pytester, "one")[0], Manifest)


def test_microtests_are_collected_only_when_their_path_is_named(pytester, run, monkeypatch):
    folder = pytester.mkdir("suites")
    (folder / "patches").mkdir()
    (folder / "patches" / "test_micro.py").write_text("def test_micro(): pass")
    (folder / "test_claim.py").write_text(SUITE)
    monkeypatch.setattr("fidelity.plugin._SUITES", folder)
    run("--collect-only", "-q", "suites").stdout.no_fnmatch_line("*test_micro*")
    named = run("--collect-only", "-q", "suites/patches")
    named.stdout.fnmatch_lines(["*test_micro*"])
    run("--collect-only", "-q", "suites/patches/test_micro.py::test_micro").stdout.fnmatch_lines(
        ["*test_micro*"]
    )


def test_an_empty_selection_of_the_suites_folder_was_meant(pytester, run, monkeypatch):
    folder = pytester.mkdir("suites")
    (folder / "test_claim.py").write_text(SUITE)
    monkeypatch.setattr("fidelity.plugin._SUITES", folder)
    result = pytester.runpytest_inprocess("suites", "-k", "nothing", "-p", "no:hypothesispytest")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*no claim was collected*"])
