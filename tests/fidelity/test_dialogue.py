"""Scripted conversations: what is told, what is asked, and that only the turns answer it."""

import json
import re

import pytest

from fidelity.checks.register import register
from fidelity.probes.dialogue import TOOL_SHAPES, Outline, Shape, dialogue, user

SEEDS = [str(seed) for seed in range(40)]


def talk(seed, shape, facts=3, note_lines=6):
    return dialogue(Outline(seed=seed, shape=shape, facts=facts, note_lines=note_lines))


def told(found):
    scripted = [m.get("content") for turn in found.turns for m in turn.scripted]
    return "\n".join([found.system, *(turn.text for turn in found.turns), *map(str, scripted)])


@pytest.mark.parametrize("shape", Shape)
def test_the_right_answer_is_told_and_the_question_does_not_hold_it(shape):
    for seed in SEEDS:
        found = talk(seed, shape)
        assert re.search(rf"\b{found.right}\b", told(found))
        assert found.right not in found.question
        assert found.right not in found.distractors


@pytest.mark.parametrize("shape", Shape)
def test_one_message_tells_the_same_current_facts(shape):
    for seed in SEEDS:
        found = talk(seed, shape)
        whole = found.in_one_message()
        assert whole.endswith(found.question)
        assert re.search(rf"\b{found.right}\b", whole)
        assert all(not re.search(rf"\b{old}\b", whole) for old in found.superseded)


def test_an_update_changes_the_value_and_comes_after_it():
    for seed in SEEDS:
        found = talk(seed, Shape.UPDATE)
        old = found.superseded[0]
        assert old != found.right
        text = told(found)
        assert text.index(f"is {old}.") < text.index(f"is {found.right}.")


def test_the_same_outline_is_the_same_conversation_and_another_seed_is_not():
    assert talk("1", Shape.NOTES) == talk("1", Shape.NOTES)
    assert talk("1", Shape.NOTES) != talk("2", Shape.NOTES)


def test_every_axis_of_an_outline_reaches_the_conversation():
    base = talk("1", Shape.NOTES, facts=2, note_lines=5)
    assert len(talk("1", Shape.NOTES, facts=4).turns) == len(base.turns) + 2
    assert talk("1", Shape.NOTES, facts=2, note_lines=9).notes.count("\n") == 9
    assert base.notes.count("\n") == 5


@pytest.mark.parametrize("shape", TOOL_SHAPES)
def test_tool_turns_have_the_shape_of_the_api(shape):
    found = talk("1", shape)
    assert found.tools
    scripted = next(turn.scripted for turn in found.turns if turn.scripted)
    call, result, said = scripted
    assert call["role"] == "assistant"
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    name = call["tool_calls"][0]["function"]["name"]
    assert name in {tool["function"]["name"] for tool in found.tools}
    json.loads(call["tool_calls"][0]["function"]["arguments"])
    assert result["role"] == "tool"
    assert said["role"] == "assistant"


def test_the_fact_of_a_tool_result_stands_nowhere_else():
    for seed in SEEDS:
        found = talk(seed, Shape.TOOL_RESULT)
        turns = "\n".join(turn.text for turn in found.turns)
        assert found.right not in turns


def test_a_register_has_no_two_names_that_share_a_word():
    found = register(seed="s", facts=20, lines_between=1)
    words = [w for q in found.questions for w in re.search(r"the (\w+ \w+)\?", q)[1].split()]
    assert len(set(words)) == 40
    assert len(set(found.codes)) == 20


def test_salt_changes_the_beginning_of_a_register_and_nothing_else():
    plain = register(seed="s", facts=6, lines_between=1)
    salted = register(seed="s", facts=6, lines_between=1, salt="x")
    assert plain.questions == salted.questions
    assert plain.codes == salted.codes
    ours, theirs = (m.messages[0]["content"].splitlines() for m in (plain, salted))
    differing = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    assert differing == [1]


def test_a_user_turn_is_what_the_api_wants():
    assert user("x") == {"role": "user", "content": "x"}
