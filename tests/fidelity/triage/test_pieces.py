"""A chat in pieces: what belongs together, what it is about, how it is made smaller and longer."""

import pytest

from fidelity.triage.conversation import conversation_of, text_of
from fidelity.triage.desk import Tally, Try
from fidelity.triage.inquiry import tries_for
from fidelity.triage.judge import Judge
from fidelity.triage.lengths import residue_of
from fidelity.triage.pieces import blocks_of, lengthened, salted, simpler
from fidelity.triage.shrink import minimized
from fidelity.triage.topic import fact_of, topic_of
from tests.fidelity.triage.chats import CHAT, called, user


def test_tool_results_stay_with_their_calls():
    system = {"role": "system", "content": "s"}
    messages = [system, user("a"), *called(), {"role": "assistant", "content": "b"}, user("c")]
    blocks = blocks_of(messages)
    assert [len(block) for block in blocks] == [1, 4, 1]
    chat = conversation_of({"messages": messages, "tools": [{"function": {}}]}, "x")
    for _, candidate in simpler(chat):
        roles = [m["role"] for m in candidate.messages]
        calls = [m for m in candidate.messages if m.get("tool_calls")]
        assert roles.count("tool") == len(calls)
        assert candidate.messages[-1] == messages[-1]


def test_filler_goes_where_it_means_nothing():
    chat = conversation_of({"messages": CHAT}, "x")
    longer = lengthened(chat, 3)
    assert text_of(longer.messages[-2]) == "I have noted that down. ok!"
    assert longer.question == chat.question
    alone = lengthened(conversation_of({"messages": [user("Why?")]}, "x"), 2)
    assert text_of(alone.messages[0]) == "ok Why?"


@pytest.mark.parametrize(
    ("question", "pinned"),
    [("What does box 3 hold?", "Box 3 holds 4444."), ("to a file", "Box 8 holds 9999.")],
)
def test_the_turn_that_a_question_is_about_is_told_by_rare_words(question, pinned):
    chat = conversation_of({"messages": [*CHAT[:-1], user(question)]}, "x")
    assert [text_of(message) for message in topic_of(chat)] == [pinned]


@pytest.mark.parametrize(
    ("told", "question", "fact"),
    [
        (["My locker code is 4711.", "My door code is 99881."], "What is my locker code?", "4711"),
        (
            ["My locker code is 4711. Actually, my locker code is 4712."],
            "What is my locker code?",
            "4712",
        ),
        (["Box 3 holds 4444. Box 4 holds 5555."], "Right. And what does box 4 hold?", ""),
        (["I paid 4500 for the flight to Paris."], "What is the weather in Paris?", ""),
        (["My locker code is 4711."], "Write my locker code to a file", ""),
        (["My locker code is 4711 or 4712."], "What is my locker code?", ""),
        (
            ["My locker code is 4711."],
            "Is my locker code 4711, or what is my locker code 4711?",
            "",
        ),
        (["It costs 1,500.25 in all."], "What costs it in all?", ""),
        (["Hello."], "What is it?", ""),
    ],
)
def test_a_fact_is_read_off_the_chat_only_where_it_is_plain(told, question, fact):
    messages = [
        turn for text in told for turn in (user(text), {"role": "assistant", "content": "x"})
    ]
    assert fact_of(conversation_of({"messages": [*messages, user(question)]}, "x")) == fact


@pytest.mark.anyio
@pytest.mark.parametrize("needed", [[], [3], [0, 9], [2, 3, 7], list(range(10))])
async def test_minimized_keeps_just_what_is_needed(needed):
    asked = []

    async def fails(kept):
        asked.append(tuple(kept))
        return set(needed) <= set(kept)

    assert await minimized(list(range(10)), fails) == needed
    assert len(asked) <= 10 * 10


@pytest.mark.parametrize(
    ("failing", "found"),
    [
        ({3, 7}, (3, 4)),
        ({1, 3, 5, 7}, (1, 2)),
        ({3}, None),
        ({3, 6}, None),
        (set(), None),
        (set(range(8)), None),
    ],
)
def test_a_residue_is_named_only_where_it_explains_every_length(failing, found):
    assert residue_of([(40 + n, n in failing) for n in range(8)]) == found


def test_rare_failures_are_tried_more_often():
    def tally(failed, of):
        one = {"why": "", "reply": None, "trial": ""}
        return Tally(tries=[Try(failed=n < failed, **one) for n in range(of)])

    assert [tries_for(tally(k, 5)) for k in (5, 4, 3, 1)] == [1, 2, 4, 8]


def test_a_smaller_chat_must_still_hold_what_a_good_answer_needs():
    judge = Judge(expect=("4444",))
    whole = conversation_of({"messages": CHAT}, "x")
    facts = judge.facts_in(whole.context)
    assert facts == ("4444",)
    alone = conversation_of({"messages": [CHAT[-1]]}, "x")
    assert not judge.answerable(alone, facts)
    assert not Judge().answerable(alone, ())  # of a single turn, a denial is true
    assert Judge(reject=("leak",)).answerable(alone, ())


def test_chats_in_parts_alone_are_lengthened_and_salted_with_their_images_kept():
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = [{"type": "text", "text": "Why?"}, image]
    chat = conversation_of({"messages": [user(parts)]}, "x")
    for changed in (lengthened(chat, 2), salted(chat, "ok")):
        assert text_of(changed.messages[0]) == "ok Why?"
        assert changed.messages[0]["content"][-1] == image
