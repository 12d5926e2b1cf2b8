"""Aborts and early ends: they harm nobody and leave nothing half-computed."""

import pytest

from engine.sequence import EngineRequest
from tests.engine.scheduler.asking import GREEDY, Inbox, drain, prompt, tokens


@pytest.mark.parametrize("steps", range(9))
def test_an_abort_at_any_step_harms_nobody(make_engine, alone, poison, steps) -> None:
    engine = make_engine(chunk_tokens=40)
    poison(engine)
    before = engine.scheduler.gauges()
    victim = Inbox().submit(engine, "victim", prompt(130, seed=1))
    bystander = Inbox().submit(engine, "bystander", prompt(100, seed=2))
    for _ in range(steps):
        engine.scheduler.step()
    assert engine.scheduler.abort("victim")
    drain(engine)
    assert victim.reason == "abort"
    assert tokens(bystander) == alone(prompt(100, seed=2))
    # The follow-up shares the victim's prefix; every page that it reads was written.
    again = Inbox().submit(engine, "again", prompt(130, seed=1))
    drain(engine)
    assert tokens(again) == alone(prompt(130, seed=1))
    after = engine.scheduler.gauges()
    for name in ("num_running_reqs", "num_queue_reqs", "num_used_tokens", "token_usage"):
        assert after[name] == before[name] == 0


def test_only_full_computed_pages_of_an_aborted_request_stay_known(make_engine) -> None:
    engine = make_engine(chunk_tokens=100)
    Inbox().submit(engine, "a", prompt(300))
    engine.scheduler.step()  # 100 of 300 tokens: one full page and 36 rows of the next
    engine.scheduler.abort("a")
    drain(engine)
    assert engine.prefix_tree.match_prefix(prompt(300)).num_tokens == 64
    assert engine.prefix_tree.num_pages == 1


def test_an_abort_needs_the_whole_id(make_engine) -> None:
    engine = make_engine()
    inbox = Inbox().submit(engine, "request-12", prompt(10))
    assert not engine.scheduler.abort("request-1")
    assert not engine.scheduler.abort("")
    drain(engine)
    assert inbox.reason == "length"
    assert not engine.scheduler.abort("request-12")


def test_finish_ends_with_stop_and_keeps_what_was_said(make_engine) -> None:
    engine = make_engine()
    inbox = Inbox().submit(engine, "a", prompt(10))
    engine.scheduler.step()
    engine.scheduler.step()
    assert engine.scheduler.finish("a")
    drain(engine)
    assert inbox.reason == "stop"
    assert len(tokens(inbox)) == inbox[-1].completion_tokens == 2


def test_a_listener_that_is_gone_ends_its_request(make_engine) -> None:
    engine = make_engine()

    def gone(output) -> None:
        raise RuntimeError("Event loop is closed")

    request = EngineRequest(
        request_id="a", prompt_token_ids=prompt(5), sampling=GREEDY, on_output=gone
    )
    engine.scheduler.submit(request)
    drain(engine)
    assert engine.scheduler.gauges()["num_aborted_requests_total"] == 1
