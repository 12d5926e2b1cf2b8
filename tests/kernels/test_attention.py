"""Attention over pages against loops: what is seen, what is not, and what must not leak."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

NAN = float("nan")


class Case:
    """Window rows and entries of sequences, in pages; everything else is NaN."""

    def __init__(self, ragged, lengths, *, dim=24, heads=3, window=6, m=4, page_size=8, seed=1):
        g = torch.Generator().manual_seed(seed)
        self.window, self.m, self.dim, self.heads = window, m, dim, heads
        self.layout = ragged.scattered(lengths, page_size, seed)
        self.rows = [torch.randn(n, dim, generator=g) for n in lengths]
        self.entries = [torch.randn(n // m, dim, generator=g) for n in lengths]
        self.q = [torch.randn(n, heads, dim, generator=g) * 2 for n in lengths]
        self.sinks = torch.randn(heads, generator=g) * 3
        self.pool, self.entry_pool = layout_pools(self.layout, page_size, m, dim)
        for row, _ in enumerate(lengths):
            for p, value in enumerate(self.rows[row]):
                self.pool[self.layout.table[row, p // page_size], p % page_size] = value
            per_page = page_size // m
            for w, value in enumerate(self.entries[row]):
                self.entry_pool[self.layout.table[row, w // per_page], w % per_page] = value

    def run(self, ops, spans, selected=None, *, entries=True):
        q = torch.cat([self.q[row][a:b] for row, a, b in spans])
        return ops.sparse_attention(
            q, self.pool, self.entry_pool if entries else None, selected, self.sinks,
            window=self.window, m=self.m if entries else None, scale=0.3,
            batch=self.layout.batch(spans),
        )  # fmt: skip

    def naive(self, row, position, picks=None, *, entries=True):
        """One token by loops, in double precision."""
        keys = [self.rows[row][p] for p in range(max(0, position + 1 - self.window), position + 1)]
        visible = (position + 1) // self.m
        if entries:
            picks = range(visible) if picks is None else [w for w in picks if 0 <= w < visible]
            keys += [self.entries[row][w] for w in picks]
        out = []
        for h in range(self.heads):
            q = self.q[row][position, h].double()
            scores = [float(q @ k.double()) * 0.3 for k in keys]
            top = max([*scores, self.sinks[h].item()])
            weights = [math.exp(s - top) for s in scores]
            total = sum(weights) + math.exp(self.sinks[h].item() - top)
            out.append(sum(w / total * k.double() for w, k in zip(weights, keys, strict=True)))
        return torch.stack(out).float()


def layout_pools(layout, page_size, m, dim):
    return layout.poisoned(page_size, dim), layout.poisoned(page_size // m, dim)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"dim": 128, "heads": 4, "window": 16},
        {"dim": 7, "heads": 1, "window": 1},
        {"dim": 70, "heads": 5, "window": 100},
        {"m": 8, "window": 3},
    ],
)
def test_every_position_sees_its_window_and_all_closed_entries(ops, ragged, shape):
    """Positions cross each edge: multiples of m, of the window and of the page."""
    case = Case(ragged, [37, 9], **shape)
    out = case.run(ops, [(0, 0, 37), (1, 0, 9)])
    places = [(0, p) for p in range(37)] + [(1, p) for p in range(9)]
    for got, (row, position) in zip(out, places, strict=True):
        torch.testing.assert_close(got, case.naive(row, position), rtol=2e-5, atol=2e-5)


def test_a_layer_without_entries_sees_the_window_only(ops, ragged):
    case = Case(ragged, [19])
    out = case.run(ops, [(0, 10, 19)], entries=False)
    for got, position in zip(out, range(10, 19), strict=True):
        expected = case.naive(0, position, entries=False)
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)


def test_selected_entries_count_once_and_only_when_visible(ops, ragged):
    case = Case(ragged, [37])
    selected = torch.tensor([[0, 3, 8, -1], [2, 9, -1, -1], [-1, -1, -1, -1]]).int()
    out = case.run(ops, [(0, 33, 36)], selected)  # 8 entries are visible, 9 from position 35 on
    picks = ([0, 3], [2], [])
    for got, position, pick in zip(out, range(33, 36), picks, strict=True):
        torch.testing.assert_close(got, case.naive(0, position, pick), rtol=2e-5, atol=2e-5)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_token_has_the_same_bits_alone_and_among_strangers(native, ragged, data):
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    case = Case(ragged, lengths, dim=data.draw(st.sampled_from([16, 24, 128])))
    together = case.run(native, [(row, 0, n) for row, n in enumerate(lengths)])
    row = data.draw(st.integers(0, len(lengths) - 1))
    position = data.draw(st.integers(0, lengths[row] - 1))
    alone = case.run(native, [(row, position, position + 1)])
    assert torch.equal(alone[0], together[sum(lengths[:row]) + position])


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_native_and_torch_agree_on_ragged_batches(native, plain, ragged, data):
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    case = Case(
        ragged, lengths, heads=data.draw(st.integers(1, 6)), window=data.draw(st.integers(1, 50))
    )
    spans = [(row, data.draw(st.integers(0, n - 1)), n) for row, n in enumerate(lengths)]
    tokens = sum(b - a for _, a, b in spans)
    held = 2 * case.layout.table.shape[1]  # entries that the pages can hold; some not closed yet
    generator = torch.Generator().manual_seed(tokens)
    picks = torch.randint(-1, min(10, held), (tokens, 5), generator=generator).int()
    selected = data.draw(st.sampled_from([None, picks]))
    got, want = case.run(native, spans, selected), case.run(plain, spans, selected)
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)


def test_rows_that_a_token_must_not_see_may_hold_nan(ops, ragged):
    """NaN in later rows of the same page, in unclosed entries and in other sequences' pages."""
    case = Case(ragged, [30, 30])
    clean = case.run(ops, [(0, 20, 22)])
    page, slot = case.layout.table[0, 22 // 8], 22 % 8
    case.pool[page, slot:] = NAN
    case.pool[case.layout.table[0, 3]] = NAN
    case.entry_pool[case.layout.table[0, 5 // 2], 5 % 2 :] = NAN
    for pool in (case.pool, case.entry_pool):
        pool[case.layout.table[1].long()] = NAN
    assert torch.equal(case.run(ops, [(0, 20, 22)]), clean)
    assert not clean.isnan().any()


def test_a_nan_key_reaches_exactly_the_tokens_that_see_it(ops, ragged):
    case = Case(ragged, [30], window=6)
    page, slot = case.layout.table[0, 10 // 8], 10 % 8
    case.pool[page, slot] = NAN
    hit = case.run(ops, [(0, 0, 30)]).isnan().flatten(1).any(1)
    assert hit.nonzero()[:, 0].tolist() == list(range(10, 16))


def test_a_huge_sink_swallows_everything_and_a_tiny_one_nothing(ops, ragged):
    case = Case(ragged, [12])
    case.sinks = torch.tensor([1e4, -1e4, 0.0])
    out = case.run(ops, [(0, 11, 12)])
    assert out[0, 0].abs().max() == 0
    torch.testing.assert_close(out[0], case.naive(0, 11), rtol=2e-5, atol=2e-5)


def test_what_would_be_read_out_of_bounds_is_refused(ops, ragged):
    case = Case(ragged, [12])
    batch = case.layout.batch([(0, 0, 12)])
    q = torch.zeros(12, 3, 24)
    with pytest.raises(ValueError, match=r"entries_pool: got shape"):
        ops.sparse_attention(
            q, case.pool, case.pool, None, case.sinks, window=6, m=4, scale=1.0, batch=batch
        )
    with pytest.raises(ValueError, match=r"selected: got torch.int64; accepted: torch.int32"):
        case.run(ops, [(0, 0, 12)], torch.zeros(12, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"window: got 0"):
        ops.sparse_attention(
            q, case.pool, None, None, case.sinks, window=0, m=None, scale=1.0, batch=batch
        )
    small = case.pool[: int(case.layout.table.max())].contiguous()
    with pytest.raises(ValueError, match=r"window_pool: got . pages; accepted: at least"):
        ops.sparse_attention(
            q, small, None, None, case.sinks, window=6, m=None, scale=1.0, batch=batch
        )
