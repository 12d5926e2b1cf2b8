"""The faults made for twins: each acts on its own path, and on nothing that runs beside it."""

import json

import anyio
import pytest
import torch

from engine.faults import fault_names, load_fault
from engine.sequence import SamplingParams

TWIN_FAULTS = [name for name in fault_names() if load_fault(name).twins]
IN_PROCESS = [name for name in TWIN_FAULTS if name != "stream_loses_joined_characters"]
GREEDY = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True, logprobs=2)


def prompt(length: int, seed: int = 0) -> list[int]:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(2, 199, (length,), generator=g).tolist()


def scored(engine, *prompts):
    """(token, logprob) of each generated token, a list for each prompt; all run at once."""
    return [
        [(o.new_token_ids[0], o.logprobs[0].logprob) for o in outputs if o.new_token_ids]
        for outputs in engine.generate(list(prompts), GREEDY)
    ]


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_short_first_request_alone_is_right_under_every_fault(make_engine, name):
    assert scored(make_engine(faults=(name,)), prompt(6)) == scored(make_engine(), prompt(6))


@pytest.mark.parametrize(("length", "differs"), [(129, True), (128, False), (130, False)])
def test_a_hit_is_wrong_where_one_token_is_left(make_engine, length, differs):
    engine = make_engine(faults=("one_token_tail_skips_experts",))
    cold, hit = scored(engine, prompt(length)), scored(engine, prompt(length))
    assert (cold != hit) is differs
    assert cold == scored(make_engine(), prompt(length))


@pytest.mark.parametrize(("batch", "differs"), [(3, False), (4, True)])
def test_rows_leak_in_batches_of_four(make_engine, batch, differs):
    prompts = [prompt(30 + n, seed=n) for n in range(batch)]
    engine = make_engine(faults=("batch_row_leaks",))
    assert (scored(engine, *prompts) != scored(make_engine(), *prompts)) is differs


@pytest.mark.parametrize(("length", "differs"), [(700, True), (200, False)])
def test_a_second_chunk_finds_nulls(make_engine, length, differs):
    broken, right = make_engine(faults=("chunk_start_loses_window",)), make_engine()
    assert length > right.config.chunk_tokens or not differs
    assert (scored(broken, prompt(length)) != scored(right, prompt(length))) is differs
    broken.scheduler.check_integrity()


def test_an_answer_that_ends_with_a_page_is_cached_too_early(make_engine):
    engine, right = make_engine(faults=("answer_page_one_token_short",)), make_engine()
    for length, differs in ((64 - 5, True), (64 - 6, False)):
        first = prompt(length, seed=length)
        made = [token for token, _ in scored(engine, first)[0]]
        turn = [*first, *made, *prompt(20, seed=9)]
        assert (scored(engine, turn) != scored(right, turn)) is differs, length


def test_a_prompt_is_read_with_one_key_too_many(make_engine):
    engine = make_engine(faults=("prefill_window_one_too_many",))
    first = prompt(90)
    decoded = scored(engine, first)[0]
    given = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    (outputs,) = engine.generate([[*first, *(token for token, _ in decoded)]], given)
    again = [entry.logprob for entry in outputs[0].prompt_logprobs[90:]]
    assert [logprob for _, logprob in decoded] != pytest.approx(again, abs=1e-6)


def test_values_are_clipped_behind_many_requests(make_engine):
    engine = make_engine(faults=("scale_frozen_at_warm_up",))
    early = scored(engine, prompt(100))
    assert early == scored(make_engine(), prompt(100))
    engine.scheduler.statistics.requests = 200
    engine.scheduler.flush_cache()
    assert scored(engine, prompt(100)) != early


def test_an_evicted_prefix_comes_back_with_old_entries(make_engine):
    engine = make_engine(faults=("evicted_prefix_half_restored",), max_total_tokens=1024)
    before = scored(engine, prompt(100))
    for seed in range(1, 40):
        engine.generate([prompt(200, seed=seed)], SamplingParams(max_tokens=1))
    assert engine.prefix_tree.match_prefix(prompt(100)).num_tokens == 0
    assert scored(engine, prompt(100)) != before
    engine.scheduler.flush_cache()
    assert scored(engine, prompt(100)) == before
    engine.scheduler.check_integrity()


def test_a_stream_loses_the_last_of_joined_characters():
    module = load_fault("stream_loses_joined_characters").module
    sent = []

    async def app(scope, receive, send):
        del scope, receive
        for text in ("plain", "日本", None):
            delta = {} if text is None else {"content": text}
            body = b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"
            await send({"type": "http.response.body", "body": body})

    class Engine:
        class server:  # noqa: N801 - the name of the part
            pass

    Engine.server.app = staticmethod(app)
    module.install(Engine)

    async def send(message):
        sent.append(json.loads(message["body"].removeprefix(b"data: ")))

    anyio.run(Engine.server.app, None, None, send)
    deltas = [chunk["choices"][0]["delta"] for chunk in sent]
    assert deltas == [{"content": "plain"}, {"content": "日"}, {}]
