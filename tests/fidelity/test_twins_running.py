"""A whole twin, decided over trials that are made up: what fails it, what leaves it open."""

import contextlib
from types import SimpleNamespace

import msgspec
import pytest

from fidelity.errors import EndpointError, Inconclusive, Violation
from fidelity.measure import Measure
from fidelity.records import Finding, Trial
from fidelity.twins.cache import CACHED, EVICTED
from fidelity.twins.judging import UNPROVEN
from fidelity.twins.room import room_of
from fidelity.twins.running import MOST_CLASSES, TwinRun
from fidelity.twins.shapes import STREAMED
from fidelity.verdicts.attribution import attributed
from fidelity.verdicts.decisions import Claim
from fidelity.words import Blame, Budget, Concern, Outcome, Traffic

SETTINGS = SimpleNamespace(budget=Budget.QUICK, seed=1, allow=(Traffic.DISRUPTIVE,), dtype=None)


class Told:
    """Answers every probe as `tell` says of its number, its arm and its stage."""

    def __init__(self, tell):
        self.tell, self.numbers, self.arms = tell, {}, set()

    def ask(self, groups, *, concurrency=None):
        return [[self._trial(job) for job in group] for group in groups]

    def _trial(self, job):
        number = self.numbers[job.arm] = self.numbers.get(job.arm, -1) + 1
        self.arms.add(job.arm)
        return Trial(
            id=f"{job.arm} {number}",
            claim="c",
            suite="s",
            probe="p",
            cell=job.probe.cell,
            stage=job.stage,
            arm=job.arm,
            **self.tell(number, job.stage),
        )


def decided(twin, tell, *, asker=Told):
    """Return the finding of a twin, and the arms that were asked."""
    told = asker(tell)
    measure = Measure(
        Claim(id="c", suite="s", title="t"),
        asker=told,
        journal=None,
        deployment=SimpleNamespace(
            capabilities=SimpleNamespace(max_model_len=4096), server_info={}, expects=()
        ),
        settings=SETTINGS,
        planning=True,
    )
    run = TwinRun(measure, twin)
    trials = run.asked()
    with contextlib.suppress(Violation, Inconclusive, EndpointError):
        run.decide(trials)
    return measure.finding, told.arms


def off_the_path(number):
    return {"ok": None, "error": f"{UNPROVEN}{number} tokens came from a cache"}


def test_prompts_that_agree_off_the_path_do_not_turn_a_few_others_into_a_failure():
    """One in twenty that parts is what a healthy server may show; many prove no path."""

    def tell(number, stage):
        if number % 16 == 0 and (stage == 1 or number == 0):
            return {"ok": False}
        return off_the_path(number) if stage == 2 or number % 4 == 1 else {"ok": True}

    finding, _ = decided(CACHED, tell)
    assert finding.outcome is not Outcome.FAIL, finding.reason


def test_prompts_that_part_fail_a_twin_though_many_others_prove_no_path():
    def tell(number, stage):
        if number % 4 == 0:
            return {"ok": False}
        return off_the_path(number) if number % 4 == 1 else {"ok": True}

    finding, _ = decided(CACHED, tell)
    assert finding.outcome is Outcome.FAIL


def test_classes_with_a_miss_that_nobody_asked_again_keep_a_twin_from_passing():
    """Two misses far apart open more classes than are asked; those that are asked are clean."""

    def tell(number, stage):
        return {"ok": stage == 2 or number not in {0, 21, 50}}

    finding, arms = decided(CACHED, tell)
    assert len([arm for arm in arms if arm.startswith("class")]) == MOST_CLASSES
    assert finding.outcome is Outcome.INCONCLUSIVE, finding.reason
    assert "not asked again" in str(finding.parts)


def test_one_miss_whose_classes_are_all_clean_passes():
    finding, _ = decided(CACHED, lambda number, stage: {"ok": stage == 2 or number != 40})
    assert finding.outcome is Outcome.PASS, finding.reason


@pytest.mark.parametrize(
    ("shape", "concern"),
    [("usage", Concern.CONFORMANCE), ("text", Concern.READING), ("", Concern.READING)],
)
def test_the_shape_of_a_stream_alone_is_no_failure_to_read(shape, concern):
    finding, _ = decided(
        STREAMED,
        lambda number, stage: {"ok": False, "details": {"shape": shape}},
    )
    assert (finding.outcome, finding.concern) == (Outcome.FAIL, concern)


def measured(*, dtype=None, thinking=None, thinking_keys=()):
    """A deployment of which only what `room_of` reads is there; it can do everything."""
    state = SimpleNamespace(present=True)

    class Capabilities(dict):
        page_size = max_model_len = None
        dialect = "openai"

        def __missing__(self, name):
            return state

    dialect = SimpleNamespace(running_gauges=(), thinking_keys=thinking_keys)
    client = SimpleNamespace(
        server=SimpleNamespace(dialect=dialect),
        profile=SimpleNamespace(thinking=thinking),
        given_text_limit=2_304,
    )
    return SimpleNamespace(
        deployment=SimpleNamespace(
            capabilities=Capabilities(), server_info={}, roles={}, client=client
        ),
        planning=False,
        settings=SimpleNamespace(dtype=dtype),
    )


@pytest.mark.parametrize(
    ("told", "taken"),
    [("int4", "bfloat16"), ("nvfp4", "bfloat16"), ("float16", "float16"), ("float32", "float32")],
)
def test_a_format_of_weights_widens_no_twin(told, taken):
    """Both arms read the same rounded weights."""
    measure = measured(dtype=told)
    assert room_of(measure).dtype == taken
    assert room_of(measure).limit_tokens == 2_304  # a prompt past the cache is a given text
    measure.settings.dtype = None
    measure.deployment.server_info = {"dtype": told}
    assert room_of(measure).dtype == taken


@pytest.mark.parametrize(
    ("profile", "keys", "asked"),
    [(None, ("thinking",), False), (True, ("thinking",), None), (None, (), None)],
)
def test_reasoning_is_switched_off_where_nobody_asked_for_it(profile, keys, asked):
    assert room_of(measured(thinking=profile, thinking_keys=keys)).thinking is asked


@pytest.mark.parametrize(
    ("concern", "blame"),
    [(Concern.CONFORMANCE, Blame.UNKNOWN), (Concern.READING, Blame.DEPLOYMENT)],
)
def test_a_stream_of_another_shape_accuses_nobody_of_a_failed_recall(concern, blame):
    twin = Finding(
        claim="twins_shapes/stream",
        suite="twins_shapes",
        title="t",
        outcome=Outcome.FAIL,
        reason="r",
        blame=Blame.DEPLOYMENT,
        concern=concern,
    )
    recall = Finding(
        claim="needle_sweep/recall",
        suite="needle_sweep",
        title="t",
        outcome=Outcome.FAIL,
        reason="r",
        blame=Blame.UNKNOWN,
    )
    assert attributed([twin, recall])[1].blame is blame


def test_a_twin_says_how_long_its_prompts_were_and_a_fault_beyond_a_thousand_tokens_fails_it():
    told = []

    def tell(number, stage):
        return {}

    class Longer(Told):
        def _trial(self, job):
            trial = super()._trial(job)
            told.append(job.probe.cell["length_tokens"])
            return msgspec.structs.replace(trial, ok=told[-1] < 900)

    finding, _ = decided(EVICTED, tell, asker=Longer)
    assert max(told) > 1_900
    assert finding.outcome is Outcome.FAIL, finding.reason
    assert "2,048" in str(finding.parts)
    finding, _ = decided(EVICTED, lambda number, stage: {"ok": True})
    assert "1,024 and 2,048" in finding.minimum_detectable_effect
