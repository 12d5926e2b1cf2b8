"""Scores of answers: digits however they are set, hedging, denials, and budgets that ran out."""

import pytest

from fidelity.endpoint.replies import Reply
from fidelity.probes.scoring import Answer, Expected, counts_to, names_code, names_words, score
from fidelity.records import ToolCall
from fidelity.words import Score

CODE = Expected(right="48213", distractors=("55121", "70707"))


def of(text="", *, reasoning="", cut=False, arguments=""):
    calls = (ToolCall(name="save", arguments=arguments),) if arguments else ()
    return Answer.of(
        Reply(
            request_id="r",
            path="/chat/completions",
            text=text,
            reasoning=reasoning,
            tool_calls=calls,
            finish_reason="length" if cut else "stop",
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        "48213",
        "The code is 48213.",
        "48,213",
        "48 213",
        "48.213",
        "48\u202f213",
        "4 8 2 1 3",
        "4-8-2-1-3",
        "**48213**",
        "`48213`",
        "```\n48213\n```",
        "**4**8213",
        "\uff14\uff18\uff12\uff11\uff13",
        "٤٨٢١٣",
        "Line 12: 48213",
        "It is 48213, as line 7 says.",
    ],
)
def test_the_right_digits_count_however_they_are_set(text):
    assert score(of(text), CODE) is Score.RIGHT


@pytest.mark.parametrize(
    "text",
    [
        "48214",
        "148213",
        "482135",
        "48,213,000",
        "1,482,13",
        "48 2 13 is not written out, four eight",
        "There are 213 of them.",
    ],
)
def test_a_part_of_another_number_is_wrong(text):
    expected = Expected(right="4821") if text.startswith("48 2") else CODE
    assert score(of(text), expected) is Score.WRONG


def test_a_right_answer_inside_a_list_of_all_distractors_is_wrong():
    assert score(of("48213, 55121, 70707"), CODE) is Score.WRONG
    assert score(of("It is 48213 or 55121."), CODE) is Score.WRONG


def test_a_list_of_numbers_nobody_told_is_no_answer_either():
    listed = " ".join(str(n) for n in range(48200, 48220))
    assert score(of(listed), Expected(right="48213")) is Score.WRONG


def test_an_update_may_name_the_old_value_first_and_not_last():
    updated = Expected(right="48213", superseded=("11111",))
    assert score(of("It was 11111 and is now 48213."), updated) is Score.RIGHT
    assert score(of("It is 48213. No: 11111."), updated) is Score.WRONG
    assert score(of("11111"), updated) is Score.WRONG


def test_tool_arguments_are_an_answer():
    assert score(of(arguments='{"code": "48213"}'), CODE) is Score.RIGHT


def test_an_answer_that_stands_in_the_reasoning_alone_is_read_there():
    thought = "55121 is the grey one. The amber one is 48213."
    assert score(of(reasoning=thought), CODE) is Score.RIGHT
    assert score(of(reasoning="48213? No, it must be 55121."), CODE) is Score.WRONG


def test_content_counts_before_reasoning():
    assert score(of("55121", reasoning="It is 48213."), CODE) is Score.WRONG


def test_a_budget_spent_inside_the_reasoning_is_cut_and_not_wrong():
    assert score(of(reasoning="Let me see: 48213", cut=True), CODE) is Score.CUT
    assert score(of(reasoning="This is the first message", cut=True), CODE) is Score.CUT


def test_right_words_in_text_that_does_not_stop_are_a_runaway():
    assert score(of("48213 48213 48213", cut=True), CODE) is Score.RUNAWAY
    assert score(of("istant istant istant", cut=True), CODE) is Score.WRONG


def test_an_open_ended_answer_may_be_cut():
    page = Expected(right="tea house", digits=False, open_ended=True)
    assert score(of("Saved as tea_house.html: <html> ...", cut=True), page) is Score.RIGHT


@pytest.mark.parametrize("text", ["", "  \n"])
def test_nothing_is_empty(text):
    assert score(of(text), CODE) is Score.EMPTY


def test_a_denial_is_amnesic_wherever_it_stands():
    denial = "This is the first message of the conversation."
    assert score(of(denial), CODE) is Score.AMNESIC
    assert score(of("Which one?", reasoning=denial), CODE) is Score.AMNESIC
    assert score(of("48213", reasoning=denial), CODE) is Score.RIGHT


@pytest.mark.parametrize(
    "text",
    ["Saved to tea_house.html.", "The Tea House page", "tea-house", "TeaHouse.html", "tea\nhouse"],
)
def test_a_page_is_named_in_words_or_as_a_file(text):
    assert names_words(text, "tea house")


def test_another_page_is_not_named():
    assert not names_words("Saved the chess club page.", "tea house")
    assert not names_words("tea for the house", "tea house")


def test_a_count_has_every_number_once_in_order():
    assert counts_to("1, 2, 3, 4", 4)
    assert counts_to("1\n2\n3", 3)
    assert not counts_to("1 2 2 3", 3)
    assert not counts_to("1 3 2", 3)
    assert not counts_to("1 2 3 4", 3)
    assert not counts_to("", 3)


def test_a_counting_expectation_is_not_met_by_its_last_number():
    expected = Expected(right="3", count=True)
    assert score(of("1 2 3"), expected) is Score.RIGHT
    assert score(of("3"), expected) is Score.WRONG


def test_a_code_is_found_in_long_text_and_not_across_words():
    assert names_code("x" * 50_000 + " 48213 " + "y" * 50_000, "48213")
    assert not names_code("48 ships and 213 barrels", "48213")
