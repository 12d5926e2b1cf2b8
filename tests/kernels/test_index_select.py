"""The indexer: scores, visibility at every edge, a total order, and each stored format."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

FORMATS = ["fp32", "bf16", "fp8", "fp8,block", "fp4", "fp4,row", "int4", "int4,block"]
FORMATS += [f"{name},rotate" for name in ("fp32", "int4", "fp4")]


class Case:
    """Index keys of sequences, stored by `ops`; slots never written are NaN where they can be."""

    def __init__(self, ragged, ops, lengths, *, dim=32, heads=5, m=4, page_size=16, seed=3):
        g = torch.Generator().manual_seed(seed)
        self.m, self.ops = m, ops
        self.layout = ragged.scattered(lengths, page_size, seed)
        self.storage = ops.index_keys.allocate(self.layout.pages, page_size // m, dim, "cpu")
        for tensor in self.storage.tensors():
            tensor.view(torch.uint8).fill_(0xFF)  # NaN in every float format and in e8m0
        self.keys = [torch.randn(n // m, dim, generator=g) for n in lengths]
        self.q = [torch.randn(n, heads, dim, generator=g) for n in lengths]
        self.weights = [torch.randn(n, heads, generator=g) for n in lengths]
        spans = [(row, 0, n) for row, n in enumerate(lengths)]
        at = [(row, w) for row, n in enumerate(lengths) for w in range(n // m)]
        seq, index = (torch.tensor([a[i] for a in at], dtype=torch.int32) for i in (0, 1))
        batch = self.layout.batch(spans)
        ops.index_keys.store(self.storage, torch.cat(self.keys), seq, index, m, batch)

    def run(self, spans, topk, ops=None):
        q, weights = (torch.cat([x[r][a:b] for r, a, b in spans]) for x in (self.q, self.weights))
        return (ops or self.ops).index_select(
            q, weights, self.storage, m=self.m, topk=topk, batch=self.layout.batch(spans)
        )

    def naive(self, row, position, topk):
        visible = (position + 1) // self.m
        dots = torch.einsum("hd,wd->wh", self.q[row][position].double(), self.keys[row].double())
        scores = (dots.relu() @ self.weights[row][position].double()).tolist()[:visible]
        best = sorted(range(visible), key=lambda w: (-scores[w], w))[:topk]
        return sorted(best) + [-1] * (topk - len(best))


@pytest.mark.parametrize("implementation", ["torch", "native"])
@pytest.mark.parametrize("shape", [{}, {"dim": 64, "heads": 16}, {"m": 8}, {"dim": 34, "heads": 1}])
def test_every_position_reads_the_best_of_what_it_may_see(ragged, bound, implementation, shape):
    dim = shape.get("dim", 32)
    case = Case(ragged, bound(implementation, index_head_dim=dim), [70, 21], **shape)
    got = case.run([(0, 0, 70), (1, 3, 21)], topk=4).tolist()
    expected = [case.naive(0, p, 4) for p in range(70)] + [
        case.naive(1, p, 4) for p in range(3, 21)
    ]
    assert got == expected


@pytest.mark.parametrize("topk", [1, 3, 16, 17, 40])
def test_with_no_more_visible_than_topk_all_are_returned(ops, ragged, topk):
    case = Case(ragged, ops, [67])
    got = case.run([(0, 64, 67)], topk)
    assert got.shape == (3, topk)
    assert got.dtype == torch.int32
    if topk >= 16:
        assert got.tolist() == [list(range(16)) + [-1] * (topk - 16)] * 3


def scores_as_given(ops, ragged, scores, topk):
    """Select among entries whose scores are exactly `scores`: one head, one channel in use."""
    n = len(scores)
    layout = ragged.scattered([4 * n], 16)
    storage = ops.index_keys.allocate(layout.pages, 4, 32, "cpu")
    keys = torch.zeros(n, 32)
    keys[:, 0] = torch.tensor(scores).abs()
    keys[:, 1] = torch.tensor(scores).clamp(max=0).abs()
    batch = layout.batch([(0, 0, 4 * n)])
    at = (torch.zeros(n, dtype=torch.int32), torch.arange(n, dtype=torch.int32))
    ops.index_keys.store(storage, keys, *at, 4, batch)
    q = torch.zeros(1, 2, 32)
    q[0, 0, 0] = q[0, 1, 1] = 1.0
    weights = torch.tensor([[1.0, -2.0]])  # |s| - 2 |min(s, 0)| = s
    last = layout.batch([(0, 4 * n - 1, 4 * n)])
    return ops.index_select(q, weights, storage, m=4, topk=topk, batch=last)[0].tolist()


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.0, 1.0, 3.0]), min_size=1, max_size=90),
    topk=st.integers(1, 12),
)
def test_ties_go_to_the_lowest_index(native, plain, ragged, scores, topk):
    order = sorted(range(len(scores)), key=lambda w: (-scores[w], w))[:topk]
    expected = sorted(order) + [-1] * (topk - len(order))
    for ops in (native, plain):
        assert scores_as_given(ops, ragged, scores, topk) == expected


@pytest.mark.parametrize(
    "scores",
    [
        [float(i) for i in range(600)],
        [float(-i) for i in range(600)],
        [0.0] * 600,
        [float(i * 7919 % 600) for i in range(600)],
    ],
    ids=["rising", "falling", "equal", "mixed"],
)
@pytest.mark.parametrize("topk", [1, 32, 250])
def test_any_order_of_scores_is_selected_from(native, ragged, scores, topk):
    order = sorted(range(600), key=lambda w: (-scores[w], w))[:topk]
    assert scores_as_given(native, ragged, scores, topk) == sorted(order)


@pytest.mark.parametrize("implementation", ["torch", "native"])
@pytest.mark.parametrize("value", FORMATS)
def test_formats_are_scored_as_they_read_back(ragged, bound, implementation, value):
    """Selection over packed keys = selection over what `read` returns, with q in their basis."""
    ops = bound(implementation, f"index_keys={value}")
    case = Case(ragged, ops, [70])
    batch = case.layout.batch([(0, 0, 70)])
    index = torch.arange(17)
    slots = batch.entry_slots(torch.zeros(17, dtype=torch.int64), index, 4)
    case.keys = [ops.index_keys.read(case.storage, slots)]
    case.q[0] = ops.index_keys.rotate_query(case.q[0])
    rotated = Case.run  # q is given in the keys' basis already, so undo the op's own rotation
    expected = [case.naive(0, p, 4) for p in range(70)]
    case.q[0] = ops.index_keys.rotate_query(case.q[0])  # the rotation is its own inverse
    assert rotated(case, [(0, 0, 70)], topk=4).tolist() == expected


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_token_selects_the_same_alone_and_among_strangers(native, ragged, data):
    lengths = data.draw(st.lists(st.integers(4, 150), min_size=1, max_size=3))
    case = Case(ragged, native, lengths)
    topk = data.draw(st.integers(1, 9))
    together = case.run([(row, 0, n) for row, n in enumerate(lengths)], topk)
    row = data.draw(st.integers(0, len(lengths) - 1))
    position = data.draw(st.integers(0, lengths[row] - 1))
    alone = case.run([(row, position, position + 1)], topk)
    assert torch.equal(alone[0], together[sum(lengths[:row]) + position])


def test_nan_ranks_below_every_number(ops, ragged):
    case = Case(ragged, ops, [40])
    case.weights[0][:] = -case.weights[0].abs()  # every number is <= 0
    case.storage.codes[case.layout.table[0, 0], 1] = float("nan")
    picked = case.run([(0, 39, 40)], topk=9)[0].tolist()
    assert picked == [0, 2, 3, 4, 5, 6, 7, 8, 9]


def test_keys_of_another_format_are_refused(bound, ragged):
    case = Case(ragged, bound("native", "index_keys=int4"), [40])
    for implementation in ("native", "torch"):
        with pytest.raises(ValueError, match=r"storage: got keys as int4,row; accepted: fp32"):
            case.run([(0, 0, 40)], 4, bound(implementation))
    with pytest.raises(ValueError, match=r"topk: got 0"):
        case.run([(0, 0, 40)], 0)
