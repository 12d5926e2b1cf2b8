"""Logprobs of given text."""

import pytest
import torch

from engine.sequence import SamplingParams

PROMPT = torch.randint(2, 199, (170,), generator=torch.Generator().manual_seed(4)).tolist()


def ask(engine, **sampling):
    (outputs,) = engine.generate([PROMPT], SamplingParams(temperature=0.0, **sampling))
    assert all(o.prompt_logprobs is None for o in outputs[1:])
    return outputs


@pytest.fixture(scope="module")
def truth(make_engine):
    """log_softmax of every row of one uncached pass."""
    engine = make_engine(chunk_tokens=4096)
    kept = []
    logits = engine.model.logits
    engine.model.logits = lambda hidden: kept.append(logits(hidden)) or kept[-1]
    ask(engine, max_tokens=0, prompt_logprobs=0)
    return torch.log_softmax(torch.cat(kept[:-1]), dim=-1)


@pytest.mark.parametrize("chunk_tokens", [1, 63, 64, 100, 4096])
def test_each_prompt_token_is_scored_by_the_row_before_it(make_engine, truth, chunk_tokens) -> None:
    engine = make_engine(chunk_tokens=chunk_tokens)
    scored = ask(engine, max_tokens=2, prompt_logprobs=3)[0].prompt_logprobs
    assert scored[0] is None
    assert len(scored) == len(PROMPT)
    for position, score in enumerate(scored[1:], start=1):
        row = truth[position - 1]
        assert score.token_id == PROMPT[position]
        assert score.logprob == pytest.approx(row[PROMPT[position]].item(), abs=2e-4)
        assert [t for t, _ in score.top] == row.topk(3).indices.tolist()
        assert score.rank == 1 + (row > row[PROMPT[position]]).sum().item()


def test_scoring_may_start_late_and_costs_only_those_rows(make_engine) -> None:
    engine = make_engine()
    rows = []
    logits = engine.model.logits
    engine.model.logits = lambda hidden: rows.append(len(hidden)) or logits(hidden)
    whole = ask(engine, max_tokens=1, prompt_logprobs=0)[0].prompt_logprobs
    assert sum(rows) == len(PROMPT) - 1 + 1
    assert max(rows) <= 64
    rows.clear()
    late = ask(engine, max_tokens=1, prompt_logprobs=0, prompt_logprobs_start=160)
    assert sum(rows) == 10 + 1
    assert late[0].prompt_logprobs[:160] == (None,) * 160
    assert late[0].prompt_logprobs[160:] == whole[160:]


def test_a_start_beyond_the_prompt_scores_nothing(make_engine) -> None:
    scored = ask(make_engine(), max_tokens=1, prompt_logprobs=0, prompt_logprobs_start=999)
    assert scored[0].prompt_logprobs == (None,) * len(PROMPT)


def test_scoring_reads_no_cached_page_and_still_fills_the_cache(make_engine) -> None:
    engine = make_engine()
    cold = ask(engine, max_tokens=1, prompt_logprobs=1)[0]
    again = ask(engine, max_tokens=1, prompt_logprobs=1)[0]
    assert again.cached_tokens == 0
    assert again.prompt_logprobs == cold.prompt_logprobs
    assert ask(engine, max_tokens=1)[0].cached_tokens == 128


def test_generated_tokens_score_like_the_same_tokens_given(make_engine) -> None:
    engine = make_engine()
    outputs = ask(engine, max_tokens=8, logprobs=2, ignore_eos=True)
    generated = [t for o in outputs for t in o.new_token_ids]
    decode = [score.logprob for o in outputs for score in o.logprobs]
    (given,) = engine.generate(
        [PROMPT + generated], SamplingParams(max_tokens=0, prompt_logprobs=2)
    )
    prefill = [s.logprob for s in given[0].prompt_logprobs[len(PROMPT) :]]
    assert decode == pytest.approx(prefill, abs=2e-4)
    assert [s.rank for s in given[0].prompt_logprobs[len(PROMPT) :]] == [1] * 8
