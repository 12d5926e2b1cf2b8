"""Text from token streams: whole characters, and stop strings, at every portioning."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer, StopStrings
from engine.errors import CheckpointError
from engine.tokenizer import Tokenizer

TEXT = "Hé 你好 😀👩‍👩‍👧 مرحبا\n<think>x</think> end"


def test_a_text_survives_encoding_and_decoding(tokenizer):
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_survives_encoding_and_decoding(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_no_piece_of_a_stream_holds_half_a_character(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode(TEXT)
    pieces = [detokenizer.feed([i]) for i in ids]
    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert len(ids) > len([piece for piece in pieces if piece]) > 10


def test_a_character_cut_by_the_end_of_the_stream_is_not_shown(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode("a😀")
    assert detokenizer.feed(ids[:-1]) == "a"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 1279), max_size=40), st.data())
def test_any_tokens_give_the_text_of_the_tokenizer_in_any_portions(tokenizer, ids, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=5)))
    bounds = [0, *cuts, len(ids)]
    detokenizer = Detokenizer(tokenizer)
    streamed = "".join(detokenizer.feed(ids[a:b]) for a, b in itertools.pairwise(bounds))
    assert tokenizer.decode(ids).startswith(streamed)
    assert len(tokenizer.decode(ids)) - len(streamed) <= 1  # an unfinished character


def test_hidden_tokens_give_no_text(tokenizer):
    user = tokenizer.token_id("<｜User｜>")
    hidden = Detokenizer(tokenizer, frozenset([user]))
    assert hidden.feed(tokenizer.encode("a<｜User｜>b")) == "ab"


STOPS = {
    ("END",): ("one ENDtwo", "one ", "END"),
    ("END", "ENDING"): ("an ENDING", "an ", "END"),
    ("bc", "abcd"): ("xabcd", "xa", "bc"),
    ("\n\n",): ("a\nb\n\nc", "a\nb", "\n\n"),
    ("aab",): ("aaab", "a", "aab"),
    ("never",): ("neve nev", "neve nev", None),
    (): ("text", "text", None),
    ("界",): ("世界", "世", "界"),
}


@pytest.mark.parametrize("stops", STOPS, ids=repr)
def test_text_ends_before_the_first_stop_string_however_it_is_portioned(stops):
    text, expected, matched = STOPS[stops]
    for size in range(1, len(text) + 1):
        stream = StopStrings(stops)
        parts = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
        got = "".join(parts) + ("" if stream.matched else stream.close())
        assert (got, stream.matched) == (expected, matched), size


def test_no_beginning_of_a_stop_string_is_shown_before_it_is_decided():
    stream = StopStrings(["</end>"])
    assert stream.feed("text</") == "text"
    assert stream.feed("en") == ""
    assert stream.feed("x") == "</enx"


def test_a_kept_stop_string_ends_the_text():
    stream = StopStrings(["END"], keep_match=True)
    assert stream.feed("a E") + stream.feed("NDb") == "a END"


@settings(max_examples=300, deadline=None)
@given(
    st.text("ab", max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.data(),
)
def test_portions_never_change_where_a_text_stops(text, stops, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    whole, parts = StopStrings(stops), StopStrings(stops)
    expected = whole.feed(text) + whole.close()
    bounds = itertools.pairwise([0, *cuts, len(text)])
    got = "".join(parts.feed(text[a:b]) for a, b in bounds) + parts.close()
    assert (got, parts.matched) == (expected, whole.matched)
    assert not any(stop in got for stop in stops)


def test_a_folder_without_a_usable_tokenizer_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    with pytest.raises(CheckpointError, match="is not a tokenizer"):
        Tokenizer(tmp_path)


def test_token_ids_outside_the_vocabulary_are_refused(tokenizer):
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(IndexError):
            tokenizer.token_bytes(wrong)
