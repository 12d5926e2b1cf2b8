"""Games of moves: sound, shortened, put in words, and written down as scripts."""

import json

import pytest

from fidelity.errors import ConfigError
from fidelity.fuzz.moves import Kind, Move, Style, digest, requests_of, sound, traffic_of
from fidelity.fuzz.phrasing import script_of
from fidelity.fuzz.script import Abort, Chat, read_script, written
from fidelity.fuzz.shrinking import smaller
from fidelity.fuzz.writing import in_words, write_files
from fidelity.words import Traffic

GAME = (
    Move(kind=Kind.OPEN, facts=4, which=1),
    Move(kind=Kind.ABORT, talk=1, facts=2, after=1),
    Move(kind=Kind.FOLLOW_UP, talk=1, facts=2),
    Move(kind=Kind.FORK, talk=2, of=0, turns=1, facts=0),
    Move(kind=Kind.FLUSH),
    Move(kind=Kind.RETRY, talk=0),
    Move(kind=Kind.FOLLOW_UP, talk=0, facts=0, which=3, beside=(Style.WARM, Style.GREEDY)),
)


def test_a_game_that_is_sound_is_left_as_it_is():
    assert sound(GAME) == GAME
    assert requests_of(GAME) == 9
    assert traffic_of(GAME) is Traffic.DISRUPTIVE
    assert digest(GAME) == digest(sound(GAME)) != digest(GAME[:-1])


def test_what_a_missing_move_leaves_dangling_is_mended():
    without_opening = sound(GAME[1:])
    assert [m.kind for m in without_opening] == [
        Kind.ABORT,
        Kind.FOLLOW_UP,
        Kind.OPEN,  # the fork of a conversation that never was
        Kind.FLUSH,
        Kind.OPEN,  # the retry is gone, and the follow-up begins its conversation
    ]
    assert [m.talk for m in without_opening if m.talks] == [0, 0, 1, 2]
    assert sound((Move(kind=Kind.RETRY, talk=3),)) == ()
    kept = Move(kind=Kind.ABORT, facts=2, keep=True)
    assert sound((kept, Move(kind=Kind.RETRY))) == (kept,)


def test_smaller_games_are_sound_smaller_and_never_the_same():
    found = list(smaller(GAME))
    assert len(found) == len(set(found))
    assert GAME not in found
    for game in found:
        assert sound(game) == game
        script_of(game, seed="s")  # every one of them can be put in words


def test_one_seed_gives_one_script_and_two_seeds_share_no_first_line():
    one, same, other = (script_of(GAME, seed=seed) for seed in ("a", "a", "b"))
    assert one == same
    assert one.steps[0].given[0]["content"].split("\n")[1].startswith("Log book")
    assert one.steps[0].given[0]["content"] != other.steps[0].given[0]["content"]
    assert not set(one.facts) & set(other.facts)


def test_an_aborted_message_is_said_again_word_for_word():
    script = script_of(GAME, seed="a")
    aborted, after = script.steps[1], script.steps[2]
    assert isinstance(aborted, Abort)
    assert isinstance(after, Chat)
    assert after.given[: len(aborted.given)] == aborted.given
    assert len(after.given) > len(aborted.given)


def test_questions_ask_for_what_was_told_and_the_other_facts_are_rivals():
    script = script_of(GAME, seed="a")
    first = script.steps[0]
    assert script.facts[first.expect] == "c1"
    assert len(first.others) == 3
    assert first.expect not in first.others
    retry = script.steps[5]
    assert retry.retry
    assert retry.given == first.given


def test_a_script_survives_its_file(tmp_path):
    script = script_of(GAME, seed="a", about='a """ sentence \\')
    path = write_files(tmp_path, script, name="0a1b2c3d")
    assert read_script(path) == script
    assert script.requests == requests_of(GAME)
    assert script.traffic is Traffic.DISRUPTIVE
    test = tmp_path / "test_stateful_0a1b2c3d.py"
    compile(test.read_text(), str(test), "exec")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no script"),
        ("[]", "no script"),
        ('{"format": "fidelity-script/9"}', "has the format"),
        ('{"format": "fidelity-script/1", "step": []}', "no script"),
        ('{"steps": [{"op": "burn"}]}', "no script"),
        ('{"steps": [{"op": "chat", "conversation": "a", "say": "b", "of": "c"}]}', "no conver"),
    ],
)
def test_what_is_no_script_is_refused_in_words(tmp_path, text, words):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_script(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_script(tmp_path / "absent.json")


def test_words_name_every_move():
    text = in_words(GAME)
    assert text.startswith("open c1 with 4 facts -> abort c2 with 2 facts after 1 deltas")
    assert "fork c3 of c1" in text
    assert "beside 2 strangers" in text


def test_a_script_file_is_json_that_people_can_read():
    text = written(script_of(GAME, seed="a")).decode()
    assert json.loads(text)["steps"][0]["op"] == "chat"
    assert len(text.splitlines()) > 20
