"""The plugin: what claims ask, in classes, arms and epochs, and what that decides."""

from fidelity.records import Manifest, Trial
from fidelity.words import Outcome
from tests.fidelity.plugin.inner import findings, records, run, verdict


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


def test_classes_that_a_slow_server_does_not_afford_keep_a_claim_from_passing(pytester, suites):
    suites(
        needle="""
        from fake_deployment import probe
        def test_recall(measure):
            measure.deployment.client.caps.sweep_tokens = 6_000  # 22 probes cost 2,200
            sweep = [probe(i, i not in (3, 5), cell={"r": i % 128}) for i in range(256)]
            trials = measure.ask(sweep)
            measure.control("positive", "the fact is cut out", [probe("c", False)])
            measure.open_classes(
                trials,
                lambda t: [f"residue_128={t.cell['r']}"],
                lambda name, n: [probe(i) for i in range(n)],
            )
            measure.rate_at_least(trials, 0.95, title="recall >= 0.95")
        """
    )
    assert run(pytester).ret == 2
    found = findings(pytester)["needle/recall"]
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "1 class with a miss not asked again: the budget's token cap ends there" in found.reason
    second = [r for r in records(pytester) if isinstance(r, Trial) and r.stage == 2]
    assert {r.arm for r in second} == {"class residue_128=3"}


def test_under_a_time_cap_the_room_of_a_sweep_shrinks_with_what_is_left(pytester, suites):
    suites(
        needle="""
        import time
        from fidelity.words import Budget
        from fake_deployment import probes
        def room(measure):
            caps = measure.deployment.client.caps
            caps.derive(Budget.QUICK, 1_000.0, 1_000.0)
            assert caps.sweep_tokens > 300_000
            return measure.sweep_room()
        def test_first(measure):
            first = room(measure)
            assert 19_000 < first <= 20_000  # a third of 60 s, since two claims are left
            time.sleep(0.3)
            assert measure.sweep_room() <= first - 100
            measure.rate_at_least(measure.ask(probes(44)), 0.80, title="recall >= 0.80")
        def test_second(measure):
            assert 25_000 < room(measure) <= 29_850  # the last takes half of what is left
            measure.rate_at_least(measure.ask(probes(44)), 0.80, title="recall >= 0.80")
        """
    )
    result = run(pytester, "--fidelity-max-time-s=60")
    result.assert_outcomes(passed=2)


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
