"""A batch, a step or the thread breaks: requests end with an error, and nobody waits for ever."""

import threading
import time

import pytest

from engine.errors import EngineStopped
from engine.sequence import EngineRequest, SamplingParams
from tests.engine.scheduler.asking import GREEDY, Inbox, drain, prompt, tokens


def test_a_batch_that_fails_ends_its_requests_and_not_the_engine(make_engine, alone) -> None:
    engine = make_engine()
    forward = engine.model.forward

    def broken(batch):
        raise ValueError("no such luck")

    engine.model.forward = broken
    inbox = Inbox().submit(engine, "a", prompt(70))
    drain(engine)
    assert inbox.reason == "error"
    assert "ValueError: no such luck" in inbox[-1].error
    assert engine.prefix_tree.num_pages == 0
    engine.model.forward = forward
    (result,) = engine.generate([prompt(70)], GREEDY)
    assert tokens(result) == alone(prompt(70))


def test_logits_that_are_no_numbers_are_an_error_and_no_token(make_engine) -> None:
    engine = make_engine()
    logits = engine.model.logits
    engine.model.logits = lambda hidden: logits(hidden) * float("nan")
    (result,) = engine.generate([prompt(7)], GREEDY)
    assert result[-1].finish_reason == "error"
    assert "position 6 are not finite" in result[-1].error
    assert tokens(result) == []
    engine.generate([prompt(100)], GREEDY)
    assert engine.prefix_tree.num_pages == 0, "what led to such logits must not be shared"


def test_the_engine_thread_serves_requests_and_aborts_from_other_threads(make_engine) -> None:
    engine = make_engine()
    done = threading.Event()
    seen = []

    def on_output(output) -> None:
        seen.append(output)
        if output.finish_reason:
            done.set()

    endless = SamplingParams(max_tokens=4000, temperature=0.0, ignore_eos=True)
    engine.start()
    try:
        engine.scheduler.submit(
            EngineRequest(
                request_id="a", prompt_token_ids=prompt(20), sampling=endless, on_output=on_output
            )
        )
        deadline = time.monotonic() + 20
        while not seen and time.monotonic() < deadline:
            time.sleep(0.01)
        assert engine.scheduler.abort("a")
        assert done.wait(20)
        assert seen[-1].finish_reason == "abort"
        assert engine.scheduler.gauges()["num_running_reqs"] == 0
    finally:
        engine.stop()


def test_a_step_that_breaks_outside_its_batch_lets_nobody_wait_for_ever(make_engine) -> None:
    engine = make_engine()
    plan = engine.scheduler.plan
    broken = [OSError("a plan that fails once")]

    def plan_once_broken():
        if broken:
            raise broken.pop()
        return plan()

    engine.scheduler.plan = plan_once_broken
    done = [threading.Event(), threading.Event()]
    outputs: list[list] = [[], []]

    def listener(index):
        def on_output(output) -> None:
            outputs[index].append(output)
            if output.finish_reason:
                done[index].set()

        return on_output

    engine.start()
    try:
        for index in range(2):
            request = EngineRequest(
                request_id=f"r{index}",
                prompt_token_ids=prompt(20),
                sampling=GREEDY,
                on_output=listener(index),
            )
            engine.scheduler.submit(request)
            assert done[index].wait(20)
    finally:
        engine.stop()
    assert "a plan that fails once" in outputs[0][-1].error
    assert outputs[1][-1].finish_reason == "length"
    engine.scheduler.check_integrity()


def test_an_engine_whose_thread_has_ended_says_so(make_engine, monkeypatch) -> None:
    engine = make_engine()
    monkeypatch.setattr(engine.scheduler, "_loop", lambda: None)
    engine.start()
    engine.scheduler._thread.join(5)
    with pytest.raises(EngineStopped, match="thread has ended"):
        Inbox().submit(engine, "a", prompt(5))


def test_stopping_ends_requests_that_run(make_engine) -> None:
    engine = make_engine()
    endless = SamplingParams(max_tokens=4000, temperature=0.0, ignore_eos=True)
    inbox = Inbox().submit(engine, "a", prompt(20), endless)
    engine.start()
    engine.stop()
    assert inbox.reason == "abort"
