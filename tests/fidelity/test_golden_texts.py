"""The texts of a comparison: lengths, classes, and what two vocabularies come to."""

import pytest

from fidelity.checks.given import fitting_rows
from fidelity.errors import CapabilityMissing, NotApplicable
from fidelity.golden.texts import _common_words, fresh_of_class, sweep
from fidelity.probes.given_text import GivenToken


def told(*pairs, ids=True):
    return [
        GivenToken(token_id=i, text=text, logprob=-1.0, top=((i if ids else None, text, -1.0),))
        for i, text in pairs
    ]


def test_lengths_cover_every_residue_of_four():
    texts = sweep(seed="1", rows={256: 6, 512: 5, 1_024: 4})
    assert {text.tokens % 4 for text in texts} == {0, 1, 2, 3}
    assert all(text.row_tokens - 64 < text.tokens <= text.row_tokens for text in texts)


def test_texts_that_do_not_fit_go_to_the_longest_length_that_does():
    rows = {256: 6, 512: 5, 1_024: 4}
    assert fitting_rows(rows, None, 600) == {256: 6, 512: 9}
    assert fitting_rows(rows, None, None) == rows
    with pytest.raises(NotApplicable, match="no text of 256 tokens fits a context of 100"):
        fitting_rows(rows, 4_096, 100)


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("length_tokens=512", lambda text: text.row_tokens == 512),
        ("depth_frac=0.5", lambda text: text.depth_frac == 0.5),
        ("residue_64=17", lambda text: text.tokens % 64 == 17),
    ],
)
def test_fresh_texts_are_of_exactly_their_class(name, holds):
    texts = fresh_of_class(name, 22, seed=3, rows=[256, 512, 1_024])
    assert len({text.seed for text in texts}) == len(texts) == 22
    assert all(holds(text) for text in texts)


def test_one_id_that_is_two_texts_is_refused_in_words():
    with pytest.raises(CapabilityMissing, match=r"7: 'cat' to .* and 'dog' to .*vocabularies"):
        _common_words(told((5, "a"), (7, "cat")), told((5, "a"), (7, "dog")), skip=None)


def test_a_server_without_ids_is_compared_by_text():
    mine, theirs = told((5, "a")), told((5, "a"), ids=False)
    assert _common_words(mine, theirs, skip=None)
    assert not _common_words(mine, mine, skip=None)
    assert mine[0].scored(by_text=True) == theirs[0].scored(by_text=True)


def test_blanks_and_broken_bytes_are_spelled_in_many_ways():
    mine = told((1, "\u0120the"), (2, "\ufffd"), (3, "cat"))
    theirs = told((1, " the"), (2, "<0xE2>"), (3, "cat"))
    assert not _common_words(mine, theirs, skip=None)
