"""Scripts are played on what was really answered."""

import anyio

from fidelity.fuzz.playing import Can, Player
from fidelity.fuzz.script import Abort, Flood, Flush, Script
from fidelity.words import Traffic
from tests.fidelity.fuzz.answering import FakeAsk, chat


def play(script, can=None):
    ask = FakeAsk()
    played = anyio.run(lambda: Player(ask, can or Can()).play(script))
    return ask, played


def test_conversations_build_on_what_was_really_answered():
    script = Script(
        steps=(
            chat("one"),
            chat("two"),
            chat("fork", "c2", of="c1", turns=1),
            chat("two", retry=True),
            Flush(),
            Flood(say="long"),
        )
    )
    ask, played = play(script)
    contents = [content for _, content, _ in ask.sent]
    assert contents == [
        ["one"],
        ["one", "answer 1", "two"],
        ["one", "answer 1", "fork"],
        ["one", "answer 1", "two"],
        ["long"],
    ]
    assert ask.flushes == 1
    labels = ["1. chat c1", "2. chat c1", "3. fork c2", "4. retry c1", "6. flood"]
    assert [one.label for one in played] == labels
    assert ask.sent[-1][2]["traffic"] is Traffic.DISRUPTIVE


def test_an_aborted_turn_is_kept_only_when_the_script_says_so():
    steps = (
        Abort(conversation="c1", say="left", after_deltas=4),
        chat("next"),
        Abort(conversation="c1", say="kept", keep_partial=True),
        chat("last"),
    )
    ask, played = play(Script(steps=steps))
    assert ask.sent[1][1] == ["next"]
    assert ask.sent[3][1] == ["next", "answer 2", "kept", "answer 3", "last"]
    assert len(played) == 2
    assert ask.sent[0][2]["abort_after_tokens"] == 4
    assert ask.sent[0][2]["traffic"] is Traffic.PASSIVE  # closing is what any client may do


def test_an_abort_by_call_falls_back_to_closing_in_its_label_too():
    step = Abort(conversation="c1", say="left", by_call=True)
    ask, _ = play(Script(steps=(step,)), Can(call=True))
    assert ask.sent[0][2]["abort_by_call"]
    assert ask.sent[0][0].endswith("by call")
    ask, _ = play(Script(steps=(step,)), Can())
    assert not ask.sent[0][2]["abort_by_call"]
    assert ask.sent[0][0].endswith("by closing")
