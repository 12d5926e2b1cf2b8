"""The stdlib tokenizer against the library, on every character and on random text."""

import json
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from reference.tokenizer import Tokenizer

PATH = Path(__file__).parents[2] / "engine" / "checkpoints" / "nano" / "tokenizer.json"
ALPHABET = "abcXYZ  \n\t09.,'!-_<>é你🙂½²٣\u00a0\u2028\x1c\u0301sltrevmd"
MARKS = ["<think>", "</think>", "<｜User｜>", "<｜Assistant｜>", "｜DSML｜", "<tool_result>"]


@pytest.fixture(scope="module")
def both():
    return Tokenizer(PATH), Library.from_file(str(PATH))


def test_every_character_is_cut_as_the_library_cuts_it(both) -> None:
    ours, library = both
    codes = (
        *range(0xD800),
        *range(0xE000, 0x3400),
        *range(0xF900, 0x10000),
        *range(0x1F000, 0x1FB00),
    )
    texts = [f"a{chr(c)} {chr(c)}{chr(c)}b" for c in codes]
    theirs = library.encode_batch(texts, add_special_tokens=False)
    different = [t for t, e in zip(texts, theirs, strict=True) if ours.encode(t) != e.ids]
    assert different == []


def test_random_texts_are_tokenized_alike_and_read_back(both) -> None:
    ours, library = both
    draw = random.Random(1)  # noqa: S311 - texts, not secrets
    for _ in range(5000):
        parts = (
            draw.choice(ALPHABET) if draw.random() < 0.93 else draw.choice(MARKS)
            for _ in range(draw.randint(0, 25))
        )
        text = "".join(parts)
        ids = ours.encode(text)
        assert ids == library.encode(text, add_special_tokens=False).ids, repr(text)
        assert ours.decode(ids) == text


def test_half_a_character_shows_as_a_replacement(both) -> None:
    ours, _ = both
    assert ours.decode(ours.encode("🙂")[:1]) == "\ufffd"
    with pytest.raises(ValueError, match="token id 99999"):
        ours.decode([99_999])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pre_tokenizer", {"type": "Split"}),
        ("normalizer", {"type": "NFC"}),
        ("model", {"type": "Unigram"}),
    ],
)
def test_another_kind_is_refused_in_words(tmp_path, key, value) -> None:
    raw = json.loads(PATH.read_text(encoding="utf-8"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw | {key: value}))
    with pytest.raises(ValueError, match="is no byte-level BPE tokenizer"):
        Tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="is no byte-level BPE tokenizer"):
        Tokenizer(tmp_path / "none.json")
