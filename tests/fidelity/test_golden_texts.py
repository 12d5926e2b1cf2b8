"""The texts of a comparison: lengths, classes, and what two vocabularies come to."""

import math
from types import SimpleNamespace

import anyio
import pytest

from fidelity.checks.given import fitting_rows, given_limit
from fidelity.dialects import BY_NAME
from fidelity.endpoint.replies import Reply, TokenLogprob
from fidelity.errors import CapabilityMissing, EndpointError, NotApplicable
from fidelity.golden.texts import _common_words, _continue, fresh_of_class, sweep
from fidelity.probes.given_text import GivenToken, score


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


def test_texts_end_where_one_of_both_may_be_asked_no_longer_ones():
    notes = []
    measure = SimpleNamespace(planning=False, note=notes.append)

    def deployment(limit, context=None):
        client = SimpleNamespace(given_text_limit=limit)
        return SimpleNamespace(client=client, capabilities=SimpleNamespace(max_model_len=context))

    one, other = deployment(16_384), deployment(2_304)
    assert given_limit(measure, 8_128, one) == 16_384
    assert given_limit(measure, 2_048, one, other) == 2_304
    assert given_limit(measure, 4_096, deployment(16_384, 600), other) == 2_304
    assert notes == []
    assert given_limit(measure, 4_096, one, deployment(2_304, 8_192)) == 2_304
    assert "below 2,304 tokens" in notes[0]
    assert "--fidelity-allow load" in notes[0]
    assert fitting_rows({256: 2, 2_048: 1, 4_096: 1}, None, 2_304) == {256: 2, 2_048: 2}
    assert given_limit(SimpleNamespace(planning=True), 4_096) is None


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


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf, None])
def test_logprobs_that_are_no_numbers_are_trouble_of_the_server(logprob):
    entries = (TokenLogprob(token="a", logprob=-1.0), TokenLogprob(token="b", logprob=logprob))

    class Server:
        client = SimpleNamespace(server=SimpleNamespace(dialect=BY_NAME["sglang"]))

        async def complete(self, prompt, **options):
            return Reply(request_id="r", path="/completions", logprobs=entries)

    with pytest.raises(EndpointError, match=r"position 1 .* logprob"):
        anyio.run(lambda: score(Server(), [1, 2]))
    with pytest.raises(EndpointError, match=r"'b' .* logprob"):
        anyio.run(lambda: _continue(Server(), [1, 2], "measured"))


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
