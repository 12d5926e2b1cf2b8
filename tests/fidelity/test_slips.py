"""One wrong fact is forgiven where the model gets it wrong undisturbed too, and only then."""

import anyio
import pytest

from fidelity.checks.answering import Judged
from fidelity.checks.register import register
from fidelity.checks.slips import expected_of, without_slips
from fidelity.endpoint.replies import Reply
from fidelity.probes.probe import Ask
from fidelity.words import Score

TOLD = register(seed="s", facts=5, lines_between=0)


class Client:
    def __init__(self, text):
        self.text = text
        self.asked = []

    async def chat(self, messages, **options):
        del options
        self.asked.append(messages[-1]["content"])
        return Reply(request_id="r", path="", text=self.text, finish_reason="stop")


def judged(wrong):
    return {
        index: Judged(
            reply=Reply(request_id="r", path=""),
            score=Score.WRONG if index in wrong else Score.RIGHT,
            ok=index not in wrong,
        )
        for index in range(5)
    }


def kept(wrong, client):
    return anyio.run(without_slips, Ask(client), judged(wrong), TOLD)


def test_a_slip_that_happens_undisturbed_too_is_left_out():
    client = Client("11111")
    found = kept({3}, client)
    assert len(found) == 4
    assert all(each.ok for each in found)
    assert client.asked == [TOLD.questions[3]]


def test_a_fact_that_is_right_undisturbed_stays_wrong():
    found = kept({3}, Client(TOLD.codes[3]))
    assert [each.ok for each in found].count(False) == 1


@pytest.mark.parametrize("wrong", [set(), {1, 2}, {0, 1, 2, 3, 4}])
def test_nothing_is_asked_again_when_all_or_several_are_wrong(wrong):
    client = Client("11111")
    assert len(kept(wrong, client)) == 5
    assert client.asked == []


def test_the_other_codes_are_distractors():
    expected = expected_of(TOLD, 2)
    assert expected.right == TOLD.codes[2]
    assert set(expected.distractors) == set(TOLD.codes) - {TOLD.codes[2]}
