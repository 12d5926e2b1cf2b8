"""One prompt's arms: what they prove, what a doubt is worth, and what a control must show."""

from dataclasses import replace

import pytest

from fidelity.endpoint.replies import Reply, TokenLogprob, TopToken
from fidelity.errors import EndpointError
from fidelity.records import Trial
from fidelity.statistics.stats import ALPHA, p_at_least
from fidelity.twins.answers import Heard
from fidelity.twins.judging import UNPROVEN, judged
from fidelity.twins.room import Room
from fidelity.twins.running import AGREE, DECISIVE_P, _p_over_all, _proven
from fidelity.twins.twin import Arms

ROOM = Room(dtype="float32")


def heard(*said, text="", reason="length", logprob=-0.5):
    entries = tuple(
        TokenLogprob(
            token=f"<{i}>", logprob=logprob, top=(TopToken(token=f"<{i}>", logprob=logprob),)
        )
        for i in said
    )
    reply = Reply(
        request_id="r", path="", token_ids=said, logprobs=entries, text=text, finish_reason=reason
    )
    return Heard(reply=reply)


SAME = heard(1, 2, 3)


def test_equal_arms_with_a_proof_are_ok_and_prove_the_path():
    result = judged(Arms(one=SAME, other=SAME, null=(SAME, SAME), paths=("cached",)), ROOM)
    assert result.ok
    assert result.paths == ("cached",)
    assert result.details["rung"] == "exact"


def test_equal_arms_without_a_proof_say_nothing():
    result = judged(Arms(one=SAME, other=SAME, null=(SAME, SAME), doubt="no hit"), ROOM)
    assert result.ok is None
    assert result.error == f"{UNPROVEN}no hit"


def test_arms_that_part_tell_enough_whichever_path_they_took():
    arms = Arms(one=SAME, other=heard(1, 9, 3), null=(SAME, SAME), doubt="no hit")
    result = judged(arms, ROOM)
    assert result.ok is False
    assert result.cell["parts at"] == 1
    assert "the arms part" in result.details["parts"]


def test_identical_requests_that_part_are_a_miss_of_their_own():
    result = judged(Arms(one=SAME, other=SAME, null=(SAME, heard(1, 2, 9))), ROOM)
    assert result.ok is False
    assert "two identical requests part" in result.details["parts"]


def test_of_several_pairs_the_one_that_parts_most_speaks():
    arms = Arms(one=SAME, other=SAME, more=((SAME, heard(7, 2, 3)),), null=(SAME, SAME))
    assert judged(arms, ROOM).cell["parts at"] == 0


@pytest.mark.parametrize(
    ("other", "seen"), [((1, 2, 9), True), ((9, 2, 3), False), ((1, 2, 3), False)]
)
def test_a_control_is_seen_only_at_its_very_place(other, seen):
    arms = Arms(one=SAME, other=heard(*other), null=(SAME, SAME), seen_at=2)
    assert judged(arms, ROOM).ok is not seen


def test_another_text_or_ending_from_the_same_tokens_is_structural():
    for other in (heard(1, 2, 3, text="other"), heard(1, 2, 3, reason="stop")):
        assert judged(Arms(one=SAME, other=other, null=(SAME, SAME)), ROOM).ok
        result = judged(Arms(one=SAME, other=other, null=(SAME, SAME), texts=True), ROOM)
        assert result.ok is False
        assert result.details["rung"] == "structural"


def usage(told):
    reply = SAME.reply
    return Heard(reply=replace(reply, completion_tokens=told))


def test_usage_that_a_stream_does_not_tell_is_no_difference():
    pair = (usage(3), usage(None))
    assert judged(Arms(one=pair[0], other=pair[1], null=(SAME, SAME), texts=True), ROOM).ok
    result = judged(Arms(one=usage(3), other=usage(4), null=(SAME, SAME), texts=True), ROOM)
    assert (result.ok, result.details["shape"]) == (False, "usage")


def test_other_words_are_more_than_a_shape():
    one, other = heard(1, 2, text="a b"), heard(1, 2, text=" a b")
    result = judged(Arms(one=one, other=other, null=(one, one), texts=True), ROOM)
    assert result.details["shape"].startswith("spaces")
    other = heard(1, 2, text="a")
    result = judged(Arms(one=one, other=other, null=(one, one), texts=True), ROOM)
    assert result.details["shape"] == "text"
    other = heard(1, 3, text="a")
    assert "shape" not in judged(Arms(one=one, other=other, null=(one, one)), ROOM).details


def test_without_logprobs_reasoning_is_compared_too():
    def thought(reasoning):
        return Heard(reply=Reply(request_id="r", path="", text="4", reasoning=reasoning))

    arms = Arms(one=thought("2+2"), other=thought("3+1"), null=(thought("2+2"),) * 2)
    assert judged(arms, Room(graded=False)).ok is False


def test_without_logprobs_tokens_are_compared():
    room = Room(graded=False)
    assert judged(Arms(one=SAME, other=SAME, null=(SAME, SAME)), room).ok
    assert judged(Arms(one=SAME, other=heard(1, 2), null=(SAME, SAME)), room).ok is False


def test_missing_logprobs_are_trouble_and_no_agreement():
    bare = Heard(reply=Reply(request_id="r", path="", token_ids=(1,)))
    with pytest.raises(EndpointError, match="the answer has none"):
        judged(Arms(one=bare, other=bare, null=(bare, bare)), ROOM)


def trial(number, error=""):
    ok = None if error else True
    return Trial(id=f"t{number}", claim="c", suite="s", probe="p", ok=ok, error=error)


def test_a_few_prompts_off_the_path_are_left_out_in_words_and_many_are_trouble():
    few = [trial(n, f"{UNPROVEN}x" if n < 4 else "") for n in range(20)]
    speak, words = _proven(few)
    assert (len(speak), words) == (16, " (without 4 that did not take the path)")
    many = [trial(n, f"{UNPROVEN}x" if n < 6 else "") for n in range(20)]
    assert _proven(many) == (many, "")


def test_prompts_that_part_here_and_there_fail_together_where_no_class_does():
    """A third of them, in no class of their own: each class may still hold its lenient claim."""
    first, fresh = [True] * 11 + [False] * 5, ([True] * 16 + [False] * 6) * 2
    assert p_at_least(16, 22, AGREE) > ALPHA
    assert _p_over_all(first) < ALPHA
    assert _p_over_all([*first, *fresh]) < DECISIVE_P


def test_a_spike_in_one_prompt_of_sixteen_refutes_nothing():
    assert _p_over_all([True] * 15 + [False]) > ALPHA
    assert _p_over_all([True] * 57 + [False] * 3) > ALPHA
    assert _p_over_all([]) == 1.0
