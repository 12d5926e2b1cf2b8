"""An answer in company and by itself: rounding, drift, a lost fact, a leak."""

import pytest

from fidelity.endpoint.replies import TokenLogprob, TopToken
from fidelity.fuzz.comparing import compare
from fidelity.fuzz.isolation import Alone
from fidelity.fuzz.playing import Played
from fidelity.words import Ladder, Score
from tests.fidelity.fuzz.answering import chat, reply

SURE, RIVAL = -0.001, -7.0


def answer(tokens, rival=RIVAL, sure=SURE):
    logprobs = tuple(
        TokenLogprob(
            token=t,
            logprob=sure,
            top=(
                TopToken(token=t, logprob=sure),
                TopToken(token=f"not {t}", logprob=rival),
            ),
        )
        for t in tokens
    )
    return reply("".join(tokens), logprobs=logprobs)


def compared(here, there, *, dtype="float32", facts=None, **fields):
    played = Played(
        label="1. chat c1",
        chat=chat("q", **({"expect": "12345"} | fields)),
        messages=({"role": "user", "content": "12345"},),
        reply=here,
    )
    beside = Alone(reply=there, same_tokens=True)
    return compare(played, beside, facts=facts or {}, dtype=dtype)


def test_equal_answers_are_exact_and_small_differences_are_rounding():
    assert compared(answer("12345"), answer("12345")).rung is Ladder.EXACT
    found = compared(answer("12345"), answer("12345", rival=RIVAL + 1e-4))
    assert (found.ok, found.rung) == (True, Ladder.ROUNDING)


def test_a_rival_that_moved_beyond_rounding_is_a_drift_though_the_text_is_equal():
    found = compared(answer("12345"), answer("12345", rival=RIVAL + 0.1))
    assert (found.ok, found.rung) == (False, Ladder.DRIFT)
    assert "'12345' both times" in found.sentence
    # in bfloat16 the same difference is rounding
    assert compared(answer("12345"), answer("12345", rival=RIVAL + 0.1), dtype=None).ok


def test_a_tail_that_takes_one_step_of_a_16_bit_logit_is_no_finding():
    here, there = answer("12345", rival=-15.0), answer("12345", rival=-15.625)
    found = compared(here, there, dtype="bfloat16")
    assert (found.ok, found.size) == (True, 0.0)
    assert compared(here, there, dtype="float16").ok
    assert not compared(here, there, dtype="float32").ok
    # a rival that comes up out of the tail, or a chosen token that moved, is told as before
    assert not compared(here, answer("12345", rival=-6.0), dtype="bfloat16").ok
    moved = answer("12345", rival=-15.625, sure=-1.2)
    assert compared(here, moved, dtype="bfloat16").size == pytest.approx(1.199)


def test_another_answer_is_structural_where_the_fact_was_lost():
    found = compared(answer("99999"), answer("12345"))
    assert (found.ok, found.rung, found.score) == (False, Ladder.STRUCTURAL, Score.WRONG)
    assert "'99999', alone '12345'" in found.sentence


def test_texts_that_part_at_a_tie_are_no_finding():
    def tied(first):
        other = "2" if first == "1" else "1"
        top = (
            TopToken(token=first, logprob=-0.6931),
            TopToken(token=other, logprob=-0.6932),
        )
        return reply(first, logprobs=(TokenLogprob(token=first, logprob=-0.6931, top=top),))

    assert compared(tied("1"), tied("2"), expect="").ok


def test_a_foreign_fact_is_a_leak_whatever_was_sampled():
    found = compared(answer("67890"), answer("12345"), facts={"67890": "c9"}, temperature=0.8)
    assert (found.ok, found.rung) == (False, Ladder.STRUCTURAL)
    assert "which only c9 was told" in found.sentence
    assert compared(answer("12345"), answer("99999"), temperature=0.8).ok


def test_without_numbers_only_a_lost_fact_is_a_finding():
    assert compared(reply("The code is 12345."), reply("12345")).ok
    assert not compared(reply("I do not know."), reply("12345")).ok
    assert compared(reply("I do not know."), reply("nor do I")).ok


def test_an_isolated_answer_out_of_a_cache_says_nothing():
    played = Played(label="l", chat=chat("q"), messages=(), reply=answer("12345"))
    beside = Alone(reply=answer("12345"), same_tokens=True, trouble="64 tokens came from a cache")
    found = compare(played, beside, facts={}, dtype="float32")
    assert (found.ok, found.sentence) == (None, "64 tokens came from a cache")
