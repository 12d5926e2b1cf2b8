"""Continuous batching and the prefix cache: company, hits and pressure change no answer."""

import torch

from engine.sequence import SamplingParams
from tests.engine.scheduler.asking import GREEDY, Inbox, drain, prompt, tokens


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
