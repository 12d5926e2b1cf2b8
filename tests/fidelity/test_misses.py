"""Misses in words: what helps is named, the rest is not, and no answer can disturb a terminal."""

import pytest

from fidelity.records import Exchange, ToolCall, Trial
from fidelity.verdicts.axes import class_words, where
from fidelity.verdicts.evidence import Evidence
from fidelity.verdicts.misses import QUOTED_CHARS, miss_words, quoted, said_in, sentence_of_misses
from fidelity.words import Score


def trial(number=1, *, ok=False, text="17", cell=None, **fields):
    return Trial(
        id=f"t{number}",
        claim="s/c",
        suite="s",
        probe="needle",
        key=str(number),
        ok=ok,
        expected="4821",
        cell=cell or {},
        exchanges=(Exchange(request_id="r", text=text, prompt_tokens=1000 + number),),
        **fields,
    )


CELL = {
    "length_tokens": 2048,
    "depth_frac": 0.0,
    "needle_kind": "key value",
    "prompt_tokens": 2043,
    "residue_4": 3,
    "residue_128": 123,
    "cached_tokens": 0,
}


def test_length_depth_and_kind_are_named_and_residues_are_not():
    assert where(trial(cell=CELL)) == "length 2,048 tokens, depth 0, kind key value"
    assert where(trial(cell={"count_to": 72, "prompt_tokens": 16, "residue_4": 0})) == (
        "count to 72, prompt 16 tokens"
    )
    assert where(trial()) == ""


def test_a_hostile_axis_is_bounded():
    assert len(where(trial(cell={"breach": "x" * 5_000}))) < 80


def test_a_miss_is_told_with_what_was_said_and_what_is_right():
    assert miss_words(trial(cell=CELL, score=Score.AMNESIC, lost="attention")) == (
        "trial t1, length 2,048 tokens, depth 0, kind key value: said '17', right is '4821'"
        " (amnesic, lost in attention)"
    )


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\u202eb", "line\nline", "\x00", "\u200bx"])
def test_an_answer_cannot_disturb_a_terminal(text):
    assert miss_words(trial(text=text)).isprintable()


def test_an_answer_is_bounded():
    assert len(quoted("x" * 10_000)) == QUOTED_CHARS + 2
    assert quoted("x" * QUOTED_CHARS) == repr("x" * QUOTED_CHARS)


def test_an_answer_in_tool_arguments_or_reasoning_is_found():
    call = ToolCall(name="save", arguments='{"a": 1}')
    told = trial(text="")
    assert said_in(told) == "nothing"
    for fields, said in (
        ({"tool_calls": (call,)}, "'{\"a\": 1}'"),
        ({"reasoning": "this is the first message"}, "'this is the first message' (reasoning)"),
    ):
        exchange = Exchange(request_id="r", **fields)
        one = Trial(id="t", claim="s/c", suite="s", probe="p", exchanges=(exchange,))
        assert said_in(one) == said


def test_the_residue_is_named_where_it_is_what_the_misses_have_in_common():
    made = [trial(n, ok=(1000 + n) % 4 != 3) for n in range(64)]
    assert sentence_of_misses(made) == (
        "all 16 misses lie at prompt length ≡ 3 (mod 4): 16 of 16 trials there, 0 of 48 elsewhere;"
        " first miss: trial t3: said '17', right is '4821'"
    )
    scattered = [trial(n, ok=n not in {3, 9, 20}) for n in range(64)]
    assert sentence_of_misses(scattered).startswith("first miss: trial t3: said")
    assert sentence_of_misses([trial(n, ok=True) for n in range(4)]) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("residue_128=3", "prompt length ≡ 3 (mod 128)"),
        ("length_tokens=8192", "length 8,192 tokens"),
        ("depth_frac=0.5", "depth 0.5"),
        ("boundary=512+1", "boundary 512+1"),
        ("residue_x=<b>", "residue x <b>"),
    ],
)
def test_classes_have_words(name, words):
    assert class_words(name) == words


def test_a_trial_without_an_error_says_why_it_could_not_be_measured():
    cut = Trial(
        id="t",
        claim="s/c",
        suite="s",
        probe="p",
        ok=None,
        score=Score.CUT,
        exchanges=(Exchange(request_id="r", reasoning="hm", completion_tokens=4096),),
    )
    assert "all 4096 tokens of its budget inside its reasoning" in Evidence.of([cut]).trouble
    empty = Trial(id="t", claim="s/c", suite="s", probe="p", ok=None, score=Score.EMPTY)
    assert Evidence.of([empty]).trouble.endswith(
        "(first: the answer is empty and says nothing of the claim)"
    )
