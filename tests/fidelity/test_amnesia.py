"""Denials of a conversation in several wordings, and sentences that are none."""

import pytest

from fidelity.probes.amnesia import denies_the_conversation


@pytest.mark.parametrize(
    "text",
    [
        "this is the first message",
        "The user says to a file. This is the first message in the conversation.",
        "This seems to be the very first message you have sent.",
        "This appears to be the start of our conversation.",
        "We are at the beginning of a new chat.",
        "There is no previous conversation to refer to.",
        "There is no earlier page to save. Which page should I write?",
        "I have no prior context for that.",
        "There's no conversation history here.",
        "I don't have access to previous messages.",
        "I can’t see any earlier messages.",
        "I do not recall any past conversation.",
        "You haven't told me your door code.",
        "I have not been told your door code.",
        "You have not shared any file with me yet.",
        "I'm unable to find any record of that in our chat, as I have no memory.",
        "Without any previous context I can only guess.",
        "Which file would you like me to save?",
        "Could you clarify what you want to save to a file?",
        "No prior messages are given.",
    ],
)
def test_a_denial_is_recognised(text):
    assert denies_the_conversation(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Saved the tea house page to tea_house.html.",
        "48213",
        "Your door code is 4417.",
        "The first message you sent was about a ferry; the code is 48213.",
        "I have saved it. There was no error.",
        "The previous page is saved to page.html.",
        "In our conversation you told me that it is 4417.",
    ],
)
def test_an_answer_is_no_denial(text):
    assert denies_the_conversation(text) == ""


def test_only_so_much_text_is_searched_and_that_quickly():
    assert denies_the_conversation("a " * 2_000_000) == ""
