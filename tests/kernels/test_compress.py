"""Compressors: entries against loops, chunks against one piece, prefix hits against cold runs."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

NAN = float("nan")
EPS = 1e-4


class Case:
    """One compressor, and sequences whose tokens are known by position."""

    def __init__(self, ragged, lengths, *, m, overlap, dim, rope_dim, page_size, seed=0):
        g = torch.Generator().manual_seed(seed)
        channels = dim * (2 if overlap else 1)
        self.m, self.overlap, self.rope_dim, self.dim = m, overlap, rope_dim, dim
        self.layout = ragged.scattered(lengths, page_size, seed)
        self.kv = [torch.randn(n, channels, generator=g) for n in lengths]
        self.gate = [torch.randn(n, channels, generator=g) * 3 for n in lengths]
        self.ape = torch.randn(m, channels, generator=g)
        self.norm = torch.randn(dim, generator=g)
        angle = torch.rand(max(lengths) + 1, rope_dim // 2, generator=g) * 6
        self.cos_sin = (angle.cos(), angle.sin())
        self.ring = self.layout.poisoned(m * (2 if overlap else 1), 2 * channels)
        self.pool = self.layout.poisoned(page_size // m, dim)

    def run(self, ops, spans):
        batch = self.layout.batch(spans)
        kv, gate = (torch.cat([x[row][a:b] for row, a, b in spans]) for x in (self.kv, self.gate))
        entries, seq, index = ops.compress(
            kv, gate, self.ring, self.ape, self.norm, eps=EPS, m=self.m, overlap=self.overlap,
            rope_dim=self.rope_dim, cos_sin=self.cos_sin, batch=batch,
        )  # fmt: skip
        ops.store_entries(self.pool, entries, seq, index, self.m, batch)
        return entries, seq, index

    def stored(self, row, count):
        table = self.layout.table[row]
        per_page = self.layout.page_size // self.m
        return torch.stack([self.pool[table[w // per_page], w % per_page] for w in range(count)])

    def naive(self, row, w):
        """Entry `w` by loops over scalars, in double precision."""
        kv, gate, ape = self.kv[row].tolist(), self.gate[row].tolist(), self.ape.tolist()
        m, dim, out = self.m, self.dim, []
        for d in range(dim):
            slots = []
            if self.overlap and w > 0:
                slots += [
                    (gate[(w - 1) * m + j][d] + ape[j][d], kv[(w - 1) * m + j][d]) for j in range(m)
                ]
            c = d + dim if self.overlap else d
            slots += [(gate[w * m + j][c] + ape[j][c], kv[w * m + j][c]) for j in range(m)]
            top = max(s for s, _ in slots)
            total = sum(math.exp(s - top) for s, _ in slots)
            out.append(sum(math.exp(s - top) * v for s, v in slots) / total)
        norm = 1 / math.sqrt(sum(v * v for v in out) / dim + EPS)
        out = [v * norm * g for v, g in zip(out, self.norm.tolist(), strict=True)]
        for i in range(self.rope_dim // 2):
            at = dim - self.rope_dim + 2 * i
            c, s = self.cos_sin[0][w * m, i].item(), self.cos_sin[1][w * m, i].item()
            out[at], out[at + 1] = out[at] * c - out[at + 1] * s, out[at + 1] * c + out[at] * s
        return torch.tensor(out)


OVERLAPPING = {"m": 4, "overlap": True, "dim": 20, "rope_dim": 6, "page_size": 16}
PLAIN = {"m": 8, "overlap": False, "dim": 9, "rope_dim": 4, "page_size": 16}
ONE_WINDOW_A_PAGE = {"m": 4, "overlap": True, "dim": 16, "rope_dim": 16, "page_size": 4}


@pytest.mark.parametrize("shape", [OVERLAPPING, PLAIN, ONE_WINDOW_A_PAGE])
def test_entries_follow_the_formula(ops, ragged, shape):
    case = Case(ragged, [41, 3, 20], **shape)
    _, seq, index = case.run(ops, [(0, 0, 41), (1, 0, 3), (2, 0, 20)])
    m = shape["m"]
    expected = [(0, w) for w in range(41 // m)] + [(2, w) for w in range(20 // m)]
    assert list(zip(seq.tolist(), index.tolist(), strict=True)) == expected
    for row, w in expected:
        got = case.stored(row, w + 1)[w]
        torch.testing.assert_close(got, case.naive(row, w).float(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [OVERLAPPING, PLAIN, ONE_WINDOW_A_PAGE])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_chunks_of_any_size_give_the_bits_of_one_piece(native, ragged, shape, data):
    lengths = data.draw(st.lists(st.integers(1, 45), min_size=1, max_size=3))
    whole, chunked = (Case(ragged, lengths, **shape) for _ in range(2))
    whole.run(native, [(row, 0, n) for row, n in enumerate(lengths)])
    sizes = itertools.cycle([*data.draw(st.lists(st.integers(1, 17), max_size=6)), 5])
    done = [0] * len(lengths)
    for turn in itertools.count():
        spans = []
        for row, n in enumerate(lengths):
            step = min(next(sizes), n - done[row])
            if step and (turn + row) % 3:  # each sequence sits out every third turn
                spans.append((row, done[row], done[row] + step))
                done[row] += step
        if spans:
            chunked.run(native, spans)
        elif done == lengths:
            break
    for a, b in ((whole.pool, chunked.pool), (whole.ring, chunked.ring)):
        assert torch.equal(a.nan_to_num(1e9), b.nan_to_num(1e9))


@pytest.mark.parametrize("shape", [OVERLAPPING, PLAIN])
def test_native_and_torch_agree_over_decode_steps_and_write_the_same_ring(
    native, plain, ragged, shape
):
    a, b = (Case(ragged, [37, 24], **shape) for _ in range(2))
    for spans in (
        [(0, 0, 30), (1, 0, 1)],
        *[[(1, p, p + 1), (0, 29 + p, 30 + p)] for p in range(1, 8)],
    ):
        got, want = a.run(native, spans), b.run(plain, spans)
        assert torch.equal(got[1], want[1])
        assert torch.equal(got[2], want[2])
        torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)
        assert torch.equal(a.ring.nan_to_num(1e9), b.ring.nan_to_num(1e9))


@pytest.mark.parametrize("shape", [OVERLAPPING, PLAIN])
def test_a_prefix_hit_at_a_page_edge_needs_nothing_but_the_full_pages(ops, ragged, shape):
    """Fork at position 32: only pages 0 and 1 are shared; everything else is NaN."""
    cold = Case(ragged, [45], **shape)
    cold.run(ops, [(0, 0, 45)])
    hit = Case(ragged, [45], **shape)
    hit.run(ops, [(0, 0, 32)])
    shared = hit.layout.table[0, :2].long()
    others = [p for p in range(hit.layout.pages) if p not in shared.tolist()]
    hit.ring[others] = NAN
    hit.pool[others] = NAN
    hit.run(ops, [(0, 32, 45)])
    count = 45 // shape["m"]
    assert torch.equal(hit.stored(0, count), cold.stored(0, count))


@pytest.mark.parametrize("shape", [OVERLAPPING, PLAIN, ONE_WINDOW_A_PAGE])
def test_no_row_of_a_ring_is_written_twice_in_a_step(plain, ragged, shape):
    """Two writes to one place have no order on a GPU."""
    case = Case(ragged, [45, 30], **shape)
    batch = case.layout.batch([(0, 3, 45), (1, 0, 30)])
    kv, gate = torch.cat([case.kv[0][3:], case.kv[1]]), torch.cat([case.gate[0][3:], case.gate[1]])
    plain.compress(
        kv, gate, case.ring, case.ape, case.norm, eps=EPS, m=case.m, overlap=case.overlap,
        rope_dim=case.rope_dim, cos_sin=case.cos_sin, batch=batch,
    )  # fmt: skip
    _, page, row = batch.cache["survivors", case.ring.shape[1]]
    places = list(zip(page.tolist(), row.tolist(), strict=True))
    assert len(places) == len(set(places))
    assert len(places) == int((~case.ring.isnan()).any(-1).sum())


def test_a_batch_that_closes_no_window_returns_nothing_and_keeps_its_tokens(ops, ragged):
    case = Case(ragged, [4], **OVERLAPPING)
    entries, seq, index = case.run(ops, [(0, 0, 3)])
    assert entries.shape == (0, 20)
    assert seq.dtype == index.dtype == torch.int32
    case.run(ops, [(0, 3, 4)])
    torch.testing.assert_close(case.stored(0, 1)[0], case.naive(0, 0).float(), rtol=2e-5, atol=2e-6)


def test_kv_and_gate_may_be_columns_of_one_product(ops, ragged):
    case = Case(ragged, [13], **OVERLAPPING)
    both = torch.cat((case.kv[0], case.gate[0]), dim=1)
    expected, _, _ = case.run(ops, [(0, 0, 13)])
    got, _, _ = ops.compress(
        both[:, :40], both[:, 40:], case.ring, case.ape, case.norm, eps=EPS, m=4, overlap=True,
        rope_dim=6, cos_sin=case.cos_sin, batch=case.layout.batch([(0, 0, 13)]),
    )  # fmt: skip
    assert torch.equal(got, expected)


def test_a_ring_of_another_layout_is_refused(ops, ragged):
    case = Case(ragged, [13], **OVERLAPPING)
    case.ring = case.ring[:, :4]
    with pytest.raises(ValueError, match=r"ring: got shape .*; accepted: shape \['any', 8, 80\]"):
        case.run(ops, [(0, 0, 13)])
    case.m = 5
    with pytest.raises(ValueError, match=r"ape: got shape|m: got 5; accepted: a divisor"):
        case.run(ops, [(0, 0, 13)])


def test_tables_too_short_for_the_positions_are_refused(native, ragged):
    case = Case(ragged, [13], **OVERLAPPING)
    case.cos_sin = tuple(table[:8] for table in case.cos_sin)
    with pytest.raises(ValueError, match=r"cos_sin: got \[8, 3\]; accepted: \[>= 9, 3\]"):
        case.run(native, [(0, 0, 13)])


def test_entries_of_other_sequences_are_refused(ops, ragged):
    layout = ragged.scattered([16], 16)
    batch = layout.batch([(0, 0, 9)])
    pool, one = torch.zeros(layout.pages, 4, 3), torch.zeros(1, 3)
    for seq, index, told in (
        (1, 0, r"entry_seq: got 1; accepted: 0\.\.0"),
        (-1, 0, r"entry_seq: got -1; accepted: 0\.\.0"),
        (0, 2, r"entry_index: got 2; accepted: 0\.\.1, closed windows"),
        (0, -1, r"entry_index: got -1; accepted: 0\.\.1, closed windows"),
        (0, 10**4, r"entry_index: got 10000; accepted: 0\.\.1, closed windows"),
    ):
        at = (torch.tensor([seq]).int(), torch.tensor([index]).int())
        with pytest.raises(ValueError, match=told):
            ops.store_entries(pool, one, *at, 4, batch)


def test_window_rows_lie_at_their_positions(ops, ragged, randn):
    layout = ragged.scattered([21, 9], 8)
    pool, kv = layout.poisoned(8, 5), randn(12, 5)
    ops.store_window(pool, kv, layout.batch([(1, 2, 9), (0, 6, 11)]))
    places = [(1, p) for p in range(2, 9)] + [(0, p) for p in range(6, 11)]
    for row, (seq, position) in zip(kv, places, strict=True):
        assert torch.equal(pool[layout.table[seq, position // 8], position % 8], row)
    assert int((~pool.isnan()).sum()) == 12 * 5
