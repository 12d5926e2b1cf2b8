"""Where a turn was lost, told from token counts."""

import anyio
import pytest

from fidelity.endpoint.replies import Reply, Tokenized
from fidelity.errors import CapabilityMissing
from fidelity.probes.accounting import lost_by_length, shrank, too_short, where_lost

LONG = [{"role": "user", "content": "My door code is 4417. " * 20}]
TALK = [
    {"role": "user", "content": "My door code is 4417."},
    {"role": "assistant", "content": "OK."},
    {"role": "user", "content": "What is my door code?"},
]


class Client:
    def __init__(self, *, has=True):
        self.has = has

    async def tokenize(self, messages=None, prompt=None, tools=()):
        if not self.has:
            raise CapabilityMissing("none")
        if prompt is not None:
            return Tokenized(count=len(prompt.split()))
        return Tokenized(count=10 + 30 * len(tools))


def reply(prompt, completion=None, **fields):
    return Reply(
        request_id="r", path="", prompt_tokens=prompt, completion_tokens=completion, **fields
    )


def lost(turns, *, messages=TALK, client=None, tools=()):
    return anyio.run(lambda: where_lost(client or Client(), messages, turns, tools=tools))


def test_a_prompt_must_hold_the_turn_before_it_and_its_answer():
    assert shrank(reply(100, 50), reply(120))
    assert not shrank(reply(100, 50), reply(155))
    assert not shrank(reply(100, 50), reply(145))  # marks of the generation prompt may vanish


def test_reasoning_need_not_come_back():
    assert not shrank(reply(100, 80, reasoning="hm", reasoning_tokens=70), reply(115))
    assert shrank(reply(100, 80, reasoning="hm", reasoning_tokens=10), reply(115))
    assert not shrank(reply(100, 80, reasoning="hm"), reply(104))


def test_counts_that_are_not_told_prove_nothing():
    assert not shrank(reply(None, 5), reply(3))
    assert not shrank(reply(100, 5), reply(None))
    assert lost([reply(100), reply(None)]) == ""


def test_no_vocabulary_packs_a_text_that_tight():
    assert too_short(LONG, 30)
    assert not too_short(LONG, 120)
    assert lost_by_length(LONG, reply(30)) == "rendering"
    assert lost_by_length(LONG, reply(120)) == "attention"
    assert lost_by_length(LONG, reply(None)) == ""


@pytest.mark.parametrize(("last", "where"), [(4, "rendering"), (13, "attention")])
def test_short_turns_are_told_apart_by_the_tokenizer(last, where):
    assert lost([reply(6, 1), reply(last)]) == where


def test_tools_do_not_make_up_for_dropped_turns():
    tools = [{"function": {"name": "x"}}]
    assert lost([reply(40, 1), reply(36)], tools=tools) == "rendering"
    assert lost([reply(40, 1), reply(45)], tools=tools) == "attention"


def test_without_a_tokenizer_growth_alone_speaks():
    assert lost([reply(100, 50), reply(110)], client=Client(has=False)) == "rendering"
    assert lost([reply(10, 1), reply(20)], client=Client(has=False)) == "attention"
    assert lost([reply(20)], client=Client(has=False)) == ""
