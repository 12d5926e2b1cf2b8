"""What is called moved: faults tied to a place are, rounding that is alike everywhere is not."""

import math
import random

import pytest

from fidelity.golden.agreement import agreement, continuation
from fidelity.statistics.divergence import ScoredToken

ANSWER = 5


def text(tokens, *, seed=0, sd=0.0, shift=lambda i: 0.0, certain=0.5):
    """Two arms: normal noise on each logprob, and a shift by position of the text."""
    draw = random.Random(seed)  # noqa: S311 - data, not secrets
    golden, measured = [], []
    for i in range(tokens):
        sure = draw.random() < certain
        value = math.log(0.99 if sure else draw.uniform(0.3, 0.8))
        golden.append(token(i, value))
        measured.append(token(i, min(-1e-9, value + draw.gauss(0, sd) - shift(i + 1))))
    return golden, measured


def token(i, logprob):
    rest = math.log(max(1e-9, -math.expm1(logprob)))
    return ScoredToken(i, logprob, ((i, logprob), (10_000 + i, rest - math.log(2))))


def agree(arms, dtype="bfloat16"):
    return agreement(*arms, dtype=dtype, answer_at=len(arms[0]) - ANSWER)


def test_equal_arms_agree():
    found = agree(text(300), "float32")
    assert found.ok
    assert found.details["repeats"]
    assert found.details["maximum"] == 0.0


@pytest.mark.parametrize("tokens", [200, 1_000, 4_000])
def test_rounding_that_is_alike_everywhere_agrees(tokens):
    assert all(agree(text(tokens, seed=seed, sd=0.1)).ok for seed in range(5))


def test_noise_at_the_allowed_share_is_called_moved_in_one_text_of_a_hundred():
    sd = 0.25 / 1.96  # one token of twenty beyond the bound
    wrong = sum(not agree(text(400, seed=seed, sd=sd)).ok for seed in range(100))
    assert wrong <= 4


def test_noise_beyond_rounding_is_seen():
    found = agree(text(400, sd=0.5))
    assert found.classes[0].name == "all tokens"


@pytest.mark.parametrize(("residue", "modulus"), [(3, 4), (5, 16), (63, 64), (127, 128)])
def test_a_residue_of_the_position_is_not_averaged_away(residue, modulus):
    arms = text(4_000, sd=0.05, shift=lambda i: 2.0 * (i % modulus == residue))
    found = agree(arms)
    assert f"position = {residue} mod {modulus}" in [item.name for item in found.classes]
    if modulus >= 64:
        assert found.details["moved"] / found.details["open"] < 0.05


def test_what_grows_with_the_length_is_seen_where_it_begins():
    found = agree(text(2_000, sd=0.05, shift=lambda i: 1.0 if i > 1_800 else 0.0))
    assert "eighth 8 of the text" in [item.name for item in found.classes]


def test_an_answer_that_is_lost_alone_is_seen():
    golden, measured = text(2_000, sd=0.05)
    lost = [token(i, -3.0) for i in range(len(golden) - ANSWER, len(golden))]
    found = agree((golden, measured[:-ANSWER] + lost))
    assert [item.name for item in found.classes] == ["the answer"]
    assert found.details["answer_loss"] > 5


def test_the_bias_is_that_of_open_tokens_with_its_sign():
    found = agree(text(1_000, sd=0.02, shift=lambda i: 0.2))
    assert found.ok  # no token moved beyond rounding: the mean over texts is judged beside
    assert found.details["bias"] == pytest.approx(-0.2, abs=0.02)
    assert abs(agree(text(1_000, sd=0.1)).details["bias"]) < 0.02
    assert agree(text(50, certain=1.0)).details["bias"] is None


def test_one_wild_token_is_no_class():
    golden, measured = text(1_000, sd=0.05)
    measured[500] = token(500, -6.0)
    assert agree((golden, measured)).ok


def test_the_declared_dtype_says_what_rounding_may_move():
    arms = text(1_000, sd=0.02)
    assert agree(arms, "bfloat16").ok
    assert not agree(arms, "float32").ok


def words(*rows):
    return [
        ScoredToken(own, math.log(top[own]), tuple((i, math.log(p)) for i, p in top.items()))
        for own, top in rows
    ]


class TestContinuations:
    SURE = (1, {1: 0.98, 2: 0.01})

    def test_the_same_tokens_agree(self):
        found = continuation(words(self.SURE, self.SURE), words(self.SURE), dtype="bfloat16")
        assert found.ok
        assert found.details["same"] == 1

    def test_a_tie_may_turn_and_nothing_after_it_counts(self):
        golden = words(self.SURE, (1, {1: 0.46, 2: 0.44}), (5, {5: 0.9}))
        mine = words(self.SURE, (2, {1: 0.44, 2: 0.46}), (6, {6: 0.9}))
        found = continuation(golden, mine, dtype="bfloat16")
        assert found.ok
        assert (found.details["same"], found.details["tie"]) == (1, True)
        assert not continuation(golden, mine, dtype="float32").ok

    def test_another_token_that_is_no_tie_does_not_agree(self):
        golden, mine = words(self.SURE), words((2, {2: 0.9, 1: 0.05}))
        found = continuation(golden, mine, dtype="bfloat16")
        assert not found.ok
        assert (
            found.details["parts"] == "another token at place 1 of the answer, by a gap of 4.6 nats"
        )

    def test_equal_tokens_of_other_weight_do_not_agree(self):
        golden = words(*[(1, {1: 0.6, 2: 0.3})] * 10)
        mine = words(*[(1, {1: 0.4, 2: 0.3})] * 10)
        assert not continuation(golden, mine, dtype="bfloat16").ok
