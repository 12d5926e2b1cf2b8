"""Drawing tokens: distributions, seeds, penalties, ties, and independence of the batch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.logprobs import token_logprobs
from engine.sampler import Sampler, filtered, penalise
from engine.sequence import EngineRequest, SamplingParams, Sequence


def sequence(generated=(), prompt=(5,), seed=0, **sampling) -> Sequence:
    request = EngineRequest(
        request_id="r",
        prompt_token_ids=list(prompt),
        sampling=SamplingParams(**sampling),
        on_output=lambda output: None,
    )
    return Sequence(
        request=request,
        token_ids=[*prompt, *generated],
        prompt_tokens=len(prompt),
        max_tokens=100,
        seed=sampling.get("seed", seed),
        stop_token_ids=frozenset(),
    )


@pytest.fixture
def sampler() -> Sampler:
    return Sampler(None)


def test_greedy_takes_the_highest_logit_and_of_equal_ones_the_lowest_id(sampler) -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0], [-9.0, -8.0, -7.0, -6.0]])
    drawn = sampler.sample(logits, [sequence(temperature=0.0)] * 3)
    assert [d.token_id for d in drawn] == [1, 0, 3]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_without_a_finite_best_give_no_token(sampler, bad) -> None:
    row = torch.full((1, 4), bad)
    for temperature in (0.0, 1.0):
        assert sampler.sample(row, [sequence(temperature=temperature)])[0].token_id == -1


def test_draws_follow_the_softmax_at_a_temperature(sampler) -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, -2.0])
    n = 4000
    drawn = [sampler.draw(logits, sequence(seed=s, temperature=0.5)) for s in range(n)]
    expected = torch.softmax(logits / 0.5, dim=0)
    counts = torch.bincount(torch.tensor(drawn), minlength=4) / n
    # Five standard deviations of a binomial share.
    assert torch.all((counts - expected).abs() < 5 * (expected * (1 - expected) / n).sqrt() + 1e-9)


def test_the_same_seed_draws_the_same_token_whatever_shares_the_batch(sampler) -> None:
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(6, 50, generator=g)
    mine = sequence(generated=(1, 2, 3), seed=7, temperature=1.3, top_p=0.9)
    alone = sampler.sample(rows[2:3], [mine])[0].token_id
    others = [sequence(seed=s, temperature=2.0) for s in range(6)]
    others[2] = mine
    assert sampler.sample(rows, others)[2].token_id == alone
    moved = torch.cat([rows[3:], rows[:3]])
    assert sampler.sample(moved, others[3:] + others[:3])[5].token_id == alone


def test_each_draw_of_a_sequence_has_its_own_random_number(sampler) -> None:
    numbers = {sampler.uniform(sequence(generated=range(n), seed=3)) for n in range(200)}
    numbers |= {sampler.uniform(sequence(seed=s)) for s in range(4, 204)}
    assert len(numbers) == 400
    assert 0.4 < np.mean(list(numbers)) < 0.6
    assert all(0 <= x < 1 for x in numbers)


def test_top_k_keeps_k_and_prefers_lower_ids_among_equals() -> None:
    row = np.array([1.0, 2.0, 2.0, 2.0])
    assert np.flatnonzero(filtered(row, sequence(top_k=2))).tolist() == [1, 2]


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    kept = {p: np.flatnonzero(filtered(row, sequence(top_p=p))).tolist() for p in (0.4, 0.6, 0.9)}
    assert kept == {0.4: [0], 0.6: [0, 1], 0.9: [0, 1, 2]}


def test_top_p_counts_the_mass_that_top_k_left() -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    assert np.flatnonzero(filtered(row, sequence(top_k=2, top_p=0.5))).tolist() == [0]


def test_min_p_is_relative_to_the_best() -> None:
    row = np.log(np.array([0.5, 0.26, 0.2, 0.04]))
    assert np.flatnonzero(filtered(row, sequence(min_p=0.5))).tolist() == [0, 1]


def test_penalties_count_generated_tokens_and_not_the_prompt() -> None:
    row = np.zeros(6)
    penalise(
        row,
        sequence(prompt=(5, 4), generated=(1, 1, 2), frequency_penalty=0.5, presence_penalty=0.25),
    )
    assert row.tolist() == [0.0, -1.25, -0.75, 0.0, 0.0, 0.0]


def test_a_penalised_greedy_request_moves_on(sampler) -> None:
    logits = torch.tensor([[1.0, 0.9, 0.0]])
    stuck = sequence(generated=(0,), temperature=0.0, presence_penalty=0.5)
    assert sampler.sample(logits, [stuck])[0].token_id == 1
    assert logits[0, 0] == 1.0


def test_logprobs_are_the_models_own(sampler) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, 1.0]])
    asked = sequence(temperature=3.0, top_k=3, presence_penalty=1.0, logprobs=3, seed=1)
    drawn = sampler.sample(logits, [asked])[0]
    own = torch.log_softmax(logits[0], dim=0)
    assert drawn.logprobs.token_id == drawn.token_id
    assert drawn.logprobs.logprob == pytest.approx(own[drawn.token_id].item())
    assert [token for token, _ in drawn.logprobs.top] == [0, 1, 3]
    assert [score for _, score in drawn.logprobs.top] == pytest.approx(own[[0, 1, 3]].tolist())


def test_ranks_count_from_one_and_equals_share_the_better_one() -> None:
    scores = token_logprobs(torch.tensor([[2.0, 1.0, 1.0, 0.0]] * 4), [0, 1, 2, 3], 0)
    assert [s.rank for s in scores] == [1, 2, 2, 4]
    assert all(s.top == () for s in scores)


def test_more_top_logprobs_than_tokens_are_all_tokens() -> None:
    (score,) = token_logprobs(torch.tensor([[0.0, 1.0]]), [0], 20)
    assert [token for token, _ in score.top] == [1, 0]


@given(
    values=st.lists(st.floats(-30, 30), min_size=1, max_size=30),
    top_k=st.integers(-1, 40),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
    temperature=st.floats(0.01, 10.0),
    seed=st.integers(-(1 << 63), (1 << 63) - 1),
)
@settings(deadline=None, max_examples=150)
def test_every_filter_keeps_the_best_and_draws_what_it_kept(
    *, values, top_k, top_p, min_p, temperature, seed
) -> None:
    row = np.array(values)
    asked = sequence(top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature, seed=seed)
    kept = filtered(row, asked)
    assert kept[row.argmax()] == kept.max() > 0
    if top_k > 0:
        assert np.count_nonzero(kept) <= top_k
    drawn = Sampler(None).draw(torch.tensor(values, dtype=torch.float64), asked)
    assert kept[drawn] > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 2.0),
        ("max_tokens", -1),
        ("frequency_penalty", 2.5),
        ("seed", 1 << 63),
        ("logprobs", -1),
        ("prompt_logprobs_start", -5),
    ],
)
def test_values_outside_their_range_are_refused_by_name(name, value) -> None:
    with pytest.raises(InvalidRequest, match=f"^{name} is"):
        SamplingParams(**{name: value})
