"""Continuous batching, aborts, pressure and refusals, on a small random model."""

import threading
import time

import pytest
import torch

from engine.errors import ContextOverflow, EngineStopped, InvalidRequest, QueueFull
from engine.sequence import EngineRequest, SamplingParams

GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


def prompt(length: int, seed: int = 0) -> list[int]:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(2, 199, (length,), generator=g).tolist()


def tokens(outputs) -> list[int]:
    return [token for output in outputs for token in output.new_token_ids]


class Inbox(list):
    """Outputs of one request, and how to submit it."""

    def submit(self, engine, request_id, token_ids, sampling=GREEDY):
        self.request = EngineRequest(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=sampling,
            on_output=self.append,
        )
        engine.scheduler.submit(self.request)
        return self

    @property
    def reason(self):
        return self[-1].finish_reason if self else None


def drain(engine) -> None:
    while engine.scheduler.step():
        engine.scheduler.check_integrity()


@pytest.fixture(scope="module")
def alone(make_engine):
    """What a prompt generates by itself, without cache, in one chunk."""
    engine = make_engine(disable_prefix_cache=True, chunk_tokens=4096)
    known: dict = {}

    def generate(token_ids, sampling=GREEDY):
        key = (tuple(token_ids), sampling)
        if key not in known:
            known[key] = tokens(engine.generate([token_ids], sampling)[0])
        return known[key]

    return generate


def test_a_batch_generates_what_each_prompt_generates_alone(make_engine, alone, poison) -> None:
    engine = make_engine(chunk_tokens=50)
    poison(engine)
    prompts = [prompt(n, seed=n) for n in (1, 2, 63, 64, 65, 127, 128, 129, 200)]
    results = engine.generate(prompts, GREEDY)
    assert [tokens(r) for r in results] == [alone(p) for p in prompts]
    assert all(r[-1].finish_reason == "length" for r in results)
    gauges = engine.scheduler.gauges()
    assert gauges["num_mixed_steps_total"] > 0
    assert gauges["num_prefill_chunks_total"] > len(prompts)


def test_a_prefix_hit_equals_a_cold_run_to_the_bit(make_engine, driver, poison) -> None:
    engine = make_engine()
    poison(engine)
    drive = driver(engine)
    whole = prompt(300)
    cold = drive.open(whole)
    drive.step((cold, 192))
    cold_rows = drive.step((cold, 108))[0]
    engine.pools.free(cold.pages)  # as if it had never been: nothing is published
    drive.logits(whole[:200], chunk=192)
    hit = drive.open(whole)
    assert hit.num_computed == 192
    hit_rows = drive.step((hit, 108))[0]
    assert torch.equal(cold_rows, hit_rows)


def test_a_hit_needs_all_of_its_page(make_engine, driver, poison) -> None:
    """The control of the test above: one foreign row in the last cached page is visible."""
    engine = make_engine()
    poison(engine)
    drive = driver(engine)
    whole = prompt(300)
    cold = drive.logits(whole, chunk=192)
    engine.scheduler.flush_cache()
    drive.logits(whole[:200], chunk=192)
    hit = drive.open(whole)
    engine.pools.layers[0].window[hit.pages[2], 63] += 1.0
    assert not torch.equal(drive.step((hit, 108))[0], cold[192:])


def test_a_second_turn_reads_the_pages_of_the_first(make_engine, alone) -> None:
    engine = make_engine()
    first = prompt(150)
    answer = tokens(engine.generate([first], GREEDY)[0])
    second = first + answer + prompt(20, seed=9)
    (result,) = engine.generate([second], GREEDY)
    assert result[-1].cached_tokens == 128
    assert tokens(result) == alone(second)


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


def test_pressure_retracts_the_youngest_and_changes_no_answer(make_engine, alone, poison) -> None:
    engine = make_engine(max_total_tokens=64 * 5, chunk_tokens=64)
    poison(engine)
    long = SamplingParams(max_tokens=80, temperature=0.0, ignore_eos=True)
    prompts = [prompt(100, seed=n) for n in range(3)]
    inboxes = [Inbox().submit(engine, f"r{n}", p, long) for n, p in enumerate(prompts)]
    drain(engine)
    assert engine.scheduler.gauges()["num_retractions_total"] > 0
    for p, inbox in zip(prompts, inboxes, strict=True):
        assert tokens(inbox) == alone(p, long)
        assert [o.completion_tokens for o in inbox] == list(range(1, 81))


def test_retraction_does_not_score_a_prompt_twice(make_engine, poison) -> None:
    engine = make_engine(max_total_tokens=64 * 6, chunk_tokens=48)
    poison(engine)
    scored = SamplingParams(max_tokens=90, temperature=0.0, ignore_eos=True, prompt_logprobs=1)
    plain = SamplingParams(max_tokens=90, temperature=0.0, ignore_eos=True)
    first = Inbox().submit(engine, "first", prompt(120, seed=1), plain)
    second = Inbox().submit(engine, "second", prompt(120, seed=2), scored)
    third = Inbox().submit(engine, "third", prompt(60, seed=3), scored)
    drain(engine)
    assert engine.scheduler.gauges()["num_retractions_total"] > 0
    for inbox, length in ((second, 120), (third, 60)):
        carriers = [o for o in inbox if o.prompt_logprobs is not None]
        assert carriers == [inbox[0]]
        assert len(inbox[0].prompt_logprobs) == length
        wanted = inbox.request.prompt_token_ids[1:]
        assert [p.token_id for p in inbox[0].prompt_logprobs[1:]] == wanted
    assert first.reason == second.reason == third.reason == "length"


def test_equal_prompts_side_by_side_end_with_one_copy(make_engine, alone, poison) -> None:
    engine = make_engine(chunk_tokens=4096)
    poison(engine)
    same = prompt(200)
    results = engine.generate([same] * 3, GREEDY)
    assert [tokens(r) for r in results] == [alone(same)] * 3
    engine.scheduler.check_integrity()
    assert engine.prefix_tree.num_pages == 3


def test_a_full_queue_refuses_with_numbers(make_engine) -> None:
    engine = make_engine(max_running_requests=1, max_queued_requests=2)
    Inbox().submit(engine, "runs", prompt(5))
    engine.scheduler.step()
    for n in range(2):
        Inbox().submit(engine, f"waits-{n}", prompt(5))
    with pytest.raises(QueueFull, match="2 requests wait and the limit is 2"):
        Inbox().submit(engine, "too-many", prompt(5))
    drain(engine)
    assert engine.scheduler.gauges()["num_rejected_requests_total"] == 1


def test_context_overflow_is_refused_with_numbers(make_engine) -> None:
    engine = make_engine(max_model_len=100)
    limit = SamplingParams(max_tokens=10, temperature=0.0)
    with pytest.raises(ContextOverflow, match="100 tokens, but 101 were requested") as caught:
        Inbox().submit(engine, "long", prompt(91), limit)
    assert (caught.value.prompt_tokens, caught.value.max_tokens) == (91, 10)
    fits = Inbox().submit(engine, "fits", prompt(90), limit)
    rest = Inbox().submit(engine, "rest", prompt(95), SamplingParams(ignore_eos=True))
    drain(engine)
    assert fits.reason == rest.reason == "length"
    assert rest[-1].completion_tokens == 5


def test_the_pools_bound_the_context(make_engine) -> None:
    engine = make_engine(max_total_tokens=64 * 3)
    assert engine.max_model_len == 192
    (result,) = engine.generate([prompt(150)], SamplingParams(ignore_eos=True, temperature=0.0))
    assert result[-1].completion_tokens == 42


@pytest.mark.parametrize(
    ("token_ids", "sentence"),
    [([], "empty"), ([5, 199], "199 is not in the vocabulary of 199"), ([-1], "-1 is not")],
)
def test_an_unusable_prompt_is_refused(make_engine, token_ids, sentence) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        Inbox().submit(make_engine(), "bad", token_ids)


def test_an_id_in_use_is_refused_and_free_again_afterwards(make_engine) -> None:
    engine = make_engine()
    Inbox().submit(engine, "a", prompt(5))
    with pytest.raises(InvalidRequest, match="'a' is in use"):
        Inbox().submit(engine, "a", prompt(5))
    drain(engine)
    Inbox().submit(engine, "a", prompt(5))
    drain(engine)


def test_stop_tokens_end_a_request_and_are_named(make_engine, alone) -> None:
    engine = make_engine()
    answer = alone(prompt(40))
    stop = SamplingParams(
        max_tokens=12, temperature=0.0, ignore_eos=True, stop_token_ids=(answer[4],)
    )
    (result,) = engine.generate([prompt(40)], stop)
    cut = answer.index(answer[4]) + 1
    assert tokens(result) == answer[:cut]
    assert result[-1].finish_reason == "stop"
    assert result[-1].stop_token_id == answer[4]


def test_no_tokens_wanted_means_the_prompt_is_only_read(make_engine) -> None:
    engine = make_engine()
    (result,) = engine.generate([prompt(70)], SamplingParams(max_tokens=0))
    assert [(o.new_token_ids, o.finish_reason) for o in result] == [((), "length")]
    assert engine.prefix_tree.num_pages == 1


def test_the_cache_is_not_flushed_under_a_running_request(make_engine) -> None:
    engine = make_engine()
    Inbox().submit(engine, "a", prompt(70))
    engine.scheduler.step()
    assert not engine.scheduler.flush_cache()
    drain(engine)
    assert engine.prefix_tree.num_pages == 1
    assert engine.scheduler.flush_cache()
    assert engine.prefix_tree.num_pages == 0


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
