"""PagedBatch: what it derives, and what it refuses."""

import dataclasses

import pytest
import torch


@pytest.fixture
def batch(ragged):
    layout = ragged(8, [[4, 2, 7], [0, 5], [3]], pages=8)
    return layout.batch([(0, 6, 19), (1, 15, 16), (2, 0, 3)])


def test_rows_of_tokens_and_entries(batch):
    assert batch.window_slots().tolist()[:4] == [4 * 8 + 6, 4 * 8 + 7, 2 * 8, 2 * 8 + 1]
    assert batch.window_slots().tolist()[-4:] == [5 * 8 + 7, 24, 25, 26]
    slots = batch.entry_slots(torch.tensor([0, 0, 1]), torch.tensor([1, 4, 3]), 4)
    assert slots.tolist() == [4 * 2 + 1, 7 * 2, 5 * 2 + 1]


@pytest.mark.parametrize(
    ("m", "expected"),
    [
        (4, [(0, 1), (0, 2), (0, 3), (1, 3)]),
        (8, [(0, 0), (0, 1), (1, 1)]),
        (1, [(0, p) for p in range(6, 19)] + [(1, 15), (2, 0), (2, 1), (2, 2)]),
    ],
)
def test_windows_close_when_their_last_token_is_here(batch, m, expected):
    seq, index = batch.closed_entries(m)
    assert list(zip(seq.tolist(), index.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("positions", lambda v: v + 1, "positions: got .*contiguous up to seq_lens - 1"),
        ("positions", lambda v: v.long(), "positions: got torch.int64; accepted: torch.int32"),
        ("token_seq", lambda v: v.flip(0), "token_seq: got"),
        ("query_start", lambda v: v + 1, "query_start: got .*ascending from 0 to T = 17"),
        ("query_start", lambda v: v[:-1], r"query_start: got shape \[3\]; accepted: shape \[4\]"),
        ("seq_lens", lambda v: v * 100, "seq_lens: got 1900 tokens .*at most 24"),
        ("seq_lens", lambda v: v - 7, "seq_lens: got 12 tokens for sequence 0 with 13"),
        ("page_table", lambda v: v + 4, r"page_table: got page ids \d..11; accepted: 0..7"),
        ("page_table", lambda v: v - 1, "page_table: got page ids -1"),
        ("token_ids", lambda v: v + 6, "token_ids: got values .*accepted: 0..6"),
        ("page_size", lambda v: 0, "page_size: got 0"),
    ],
)
def test_a_batch_that_does_not_agree_with_itself_is_refused(batch, field, value, words):
    broken = dataclasses.replace(batch, cache={}, **{field: value(getattr(batch, field))})
    with pytest.raises(ValueError, match=words):
        broken.validate(pages=8, vocab=7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("positions", lambda v: v + 1),
        ("token_seq", lambda v: v.flip(0)),
        ("query_start", lambda v: v + 1),
        ("query_start", lambda v: -v),
        ("seq_lens", lambda v: v * 100),
        ("seq_lens", lambda v: v - 7),
        ("page_table", lambda v: v - 1),
        ("page_size", lambda v: 0),
    ],
)
def test_native_ops_check_by_themselves_before_they_touch_memory(native, batch, field, value):
    """Without a call of `validate`."""
    broken = dataclasses.replace(batch, cache={}, **{field: value(getattr(batch, field))})
    pool = torch.zeros(8, max(1, broken.page_size), 4)
    with pytest.raises(ValueError, match=f"{field}: got|pool: got"):
        native.store_window(pool, torch.zeros(17, 4), broken)


def test_native_ops_refuse_a_pool_with_too_few_pages(native, batch):
    with pytest.raises(ValueError, match=r"pool: got 7 pages; accepted: at least 8"):
        native.store_window(torch.zeros(7, 8, 4), torch.zeros(17, 4), batch)
