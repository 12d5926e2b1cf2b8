"""What the scheduler refuses, with numbers."""

import pytest

from engine.errors import ContextOverflow, InvalidRequest, QueueFull
from engine.sequence import SamplingParams
from tests.engine.scheduler.asking import Inbox, drain, prompt


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
