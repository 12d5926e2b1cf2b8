"""What kernels, baselines and native ops refuse: the argument, what came, what is accepted."""

import dataclasses

import pytest
import torch

from kernels import Settings, bind

NAN = float("nan")
SETTINGS = Settings(index_topk=32, index_head_dim=64, head_dim=64, implementation="torch")


def ops_with(*patches, implementation="torch"):
    settings = dataclasses.replace(SETTINGS, implementation=implementation)
    return bind(patches, device="cpu", dtype=torch.float32, settings=settings)


def each(*patches):
    """The ops of a patch, the baseline, and the native ones."""
    return [*(ops_with(p) for p in patches), ops_with(), ops_with(implementation="native")]


@pytest.fixture
def attention(ragged, randn):
    """`attention(ops, **changes)`: two decode tokens over pages of 16, entries of 4."""
    layout = ragged.scattered([21, 41], 16)
    batch = layout.batch([(0, 20, 21), (1, 40, 41)])
    arguments = {
        "q": randn(2, 3, 8),
        "window_pool": randn(layout.pages, 16, 8),
        "entries_pool": randn(layout.pages, 4, 8),
        "selected": torch.tensor([[0, 1, -1], [2, 3, 4]], dtype=torch.int32),
        "sinks": randn(3),
    }
    options = {"window": 16, "m": 4, "scale": 0.3, "batch": batch}

    def call(ops, page=None, **changes):
        given = {**arguments, **options, **changes}
        if page is not None:
            table = batch.page_table.clone()
            table[0, :] = page
            given["batch"] = dataclasses.replace(batch, page_table=table, cache={})
        positional = [given.pop(name) for name in arguments]
        return ops.sparse_attention(*positional, **given)

    return call


@pytest.mark.parametrize("ops", each("splitk_decode"))
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"page": -1}, r"page_table: got page ids -1\.\."),
        (
            {"page": 999},
            r"(window|entries)_pool: got \d pages; accepted: at least 1000, as page_table says",
        ),
        (
            {"selected": torch.full((2, 3), 10**6).int()},
            r"selected: got 1000000; accepted: -1\.\.11",
        ),
        ({"selected": torch.full((2, 3), 12).int()}, r"selected: got 12; accepted: -1\.\.11"),
        ({"selected": torch.full((2, 3), -7).int()}, r"selected: got -7; accepted: -1\.\.11"),
        ({"scale": NAN}, r"scale: got nan; accepted: a finite number > 0"),
        ({"scale": 0.0}, r"scale: got 0\.0; accepted: a finite number > 0"),
        ({"window": 2.5}, r"window: got 2\.5; accepted: at least 1 token"),
        ({"m": 0}, r"m: got 0; accepted: a divisor of page_size = 16"),
        ({"m": 3}, r"m: got 3; accepted: a divisor of page_size = 16"),
        ({"q": torch.zeros(2, 8)}, r"q: got shape \[2, 8\]; accepted: 3 dimensions"),
        ({"sinks": torch.zeros(3).int()}, r"sinks: got torch\.int32; accepted: a floating dtype"),
    ],
)
def test_attention(attention, ops, changes, told):
    assert attention(ops).isfinite().all()
    with pytest.raises(ValueError, match=f"^{told}"):
        attention(ops, **changes)


@pytest.mark.parametrize("ops", each("splitk_decode"))
def test_entries_that_cannot_be_seen_yet_are_ignored_as_documented(attention, ops):
    """The last entry that the pages hold is no error: it is not closed yet."""
    seen = torch.tensor([[0, 1, -1], [2, 3, -1]], dtype=torch.int32)
    unseen = torch.tensor([[0, 1, 11], [2, 3, 11]], dtype=torch.int32)
    assert torch.equal(attention(ops, selected=seen), attention(ops, selected=unseen))


@pytest.mark.parametrize("ops", each("moe_routed_scaling"))
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"tid2eid": torch.rand(7, 2) * 7},
            r"tid2eid: got torch\.float32; accepted: torch\.int32|int32",
        ),
        ({"tid2eid": torch.full((7, 2), 99)}, r"tid2eid: got (expert )?99; accepted: 0\.\.7"),
        ({"tid2eid": torch.full((7, 2), -1)}, r"tid2eid: got (expert )?-1; accepted: 0\.\.7"),
        ({"tid2eid": torch.zeros(2, 2).long()}, r"token_ids: got (up to )?6; accepted: 0\.\.1"),
        ({"bias": torch.full((8,), NAN)}, r"bias: got NaN; accepted: numbers"),
        ({"bias": torch.tensor([0.0] * 7 + [NAN])}, r"bias: got NaN; accepted: numbers"),
        ({"bias": torch.ones(8).int()}, r"bias: got torch\.int32; accepted: a floating dtype"),
        ({"x": torch.ones(1, 6).int()}, r"x: got torch\.int32( on cpu)?; accepted: "),
        ({"scaling": -1.0}, r"scaling: got -1\.0; accepted: a finite number > 0"),
        ({"topk": 2.0}, r"topk: got 2\.0; accepted: 1\.\.8 experts"),
    ],
)
def test_routing(ragged, randn, ops, changes, told):
    batch = ragged.scattered([9], 16).batch([(0, 8, 9)])
    batch.token_ids.fill_(6)
    given = {"x": randn(1, 6), "gate_w": randn(8, 6), "bias": None, "tid2eid": None}
    given |= {"topk": 2, "scaling": 1.0, **changes}
    positional = [given.pop(name) for name in ("x", "gate_w", "bias", "tid2eid")]
    with pytest.raises(ValueError, match=f"^{told}"):
        ops.route(*positional, **given, batch=batch)


@pytest.mark.parametrize("ops", each("swiglu_clamp", "mxfp4_experts", "nvfp4_experts"))
@pytest.mark.parametrize("limit", [NAN, "10"])
def test_a_clamp_at_nan_would_clamp_nothing(randn, ops, limit):
    ids, weights = torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, 1)
    with pytest.raises(ValueError, match=rf"^limit: got {limit}; accepted: a number, or None"):
        ops.experts(randn(2, 32), ids, weights, randn(1, 64, 32), randn(1, 32, 32), limit=limit)
    with pytest.raises(ValueError, match=rf"^limit: got {limit}; accepted: a number, or None"):
        ops.shared_expert(randn(2, 4), randn(3, 4), randn(3, 4), randn(4, 3), limit=limit)


@pytest.mark.parametrize("ops", each("swiglu_clamp", "mxfp4_experts", "nvfp4_experts"))
def test_experts_of_other_dtypes(randn, ops):
    ids, weights = torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, 1)
    x, gate_up, down = randn(2, 32), randn(1, 64, 32), randn(1, 32, 32)
    for wrong in (weights.double(), weights.int()):
        with pytest.raises(
            ValueError, match=r"^weights: got torch\.(float64|int32); accepted: float32"
        ):
            ops.experts(x, ids, wrong, gate_up, down, limit=None)
    with pytest.raises(ValueError, match=r"^(x|gate_up): got torch\.float(32|64).*; accepted"):
        ops.experts(x.double(), ids, weights, gate_up, down, limit=None)


class TestStores:
    """Window rows, entries and index keys: pages, entries, rates."""

    @pytest.fixture
    def layout(self, ragged):
        return ragged.scattered([33], 16)

    @pytest.mark.parametrize("ops", each("fp8_kv"))
    def test_rows(self, layout, randn, ops):
        batch = layout.batch([(0, 0, 33)])
        table = batch.page_table.clone()
        for page, told in ((-1, r"page_table: got page ids -1"), (999, r"pool: got \d pages")):
            table[0, 0] = page
            broken = dataclasses.replace(batch, page_table=table, cache={})
            with pytest.raises(ValueError, match=told):
                ops.store_window(layout.poisoned(16, 64), randn(33, 64), broken)

    @pytest.mark.parametrize("ops", each("fp8_kv", "index_keys=fp8"))
    @pytest.mark.parametrize(
        ("seq", "index", "m", "told"),
        [
            (0, -1, 4, r"entry_index: got -1; accepted: 0\.\.7, closed windows"),
            (0, 8, 4, r"entry_index: got 8; accepted: 0\.\.7, closed windows"),
            (0, 10**4, 4, r"entry_index: got 10000; accepted: 0\.\.7, closed windows"),
            (5, 0, 4, r"entry_seq: got 5; accepted: 0\.\.0"),
            (0, 0, 0, r"m: got 0; accepted: a divisor of page_size = 16"),
            (0, 0, None, r"m: got None; accepted: a divisor of page_size = 16"),
        ],
    )
    def test_entries_and_keys(self, layout, randn, ops, seq, index, m, told):
        batch = layout.batch([(0, 0, 33)])
        at = (torch.tensor([seq]).int(), torch.tensor([index]).int())
        with pytest.raises(ValueError, match=f"^{told}"):
            ops.store_entries(layout.poisoned(4, 64), randn(1, 64), *at, m, batch)
        storage = ops.index_keys.allocate(layout.pages, 4, 64, "cpu")
        with pytest.raises(ValueError, match=f"^{told}"):
            ops.index_keys.store(storage, randn(1, 64), *at, m, batch)

    @pytest.mark.parametrize(
        ("pages", "slots", "dim", "told"),
        [
            (-2, 4, 64, r"pages: got -2; accepted: a number of pages"),
            (2, 0, 64, r"slots: got 0; accepted: at least 1 key a page"),
            (2, 4, 63, r"dim: got 63 channels; accepted: what int4,row can pack"),
        ],
    )
    def test_storage(self, pages, slots, dim, told):
        with pytest.raises(ValueError, match=f"^{told}"):
            ops_with("index_keys=int4").index_keys.allocate(pages, slots, dim, "cpu")


@pytest.mark.parametrize("ops", each("indexer_triton"))
def test_the_indexer(ragged, randn, ops):
    layout = ragged.scattered([33], 16)
    batch = layout.batch([(0, 32, 33)])
    storage = ops.index_keys.allocate(layout.pages, 4, 64, "cpu")
    q, weights = randn(1, 2, 64), randn(1, 2)
    with pytest.raises(ValueError, match=r"^m: got 0; accepted: a divisor"):
        ops.index_select(q, weights, storage, m=0, topk=3, batch=batch)
    with pytest.raises(ValueError, match=r"^topk: got 0; accepted: at least 1 entry"):
        ops.index_select(q, weights, storage, m=4, topk=0, batch=batch)
    with pytest.raises(ValueError, match=r"^q: got (contiguous )?torch\.int32"):
        ops.index_select(q.int(), weights, storage, m=4, topk=3, batch=batch)
    table = batch.page_table.clone()
    table[0, 0] = 999
    broken = dataclasses.replace(batch, page_table=table, cache={})
    with pytest.raises(ValueError, match=r"^storage: got \d pages; accepted: at least 1000"):
        ops.index_select(q, weights, storage, m=4, topk=3, batch=broken)


def test_a_rate_of_zero_is_refused_before_anything_is_divided_by_it(ragged):
    layout = ragged.scattered([33], 16)
    for ops in each():
        with pytest.raises(ValueError, match=r"^m: got 0; accepted: a divisor"):
            ops.compress(
                torch.zeros(33, 8), torch.zeros(33, 8), layout.poisoned(4, 16), torch.zeros(4, 8),
                torch.ones(8), eps=1e-6, m=0, overlap=False, rope_dim=2,
                cos_sin=(torch.ones(40, 1), torch.zeros(40, 1)), batch=layout.batch([(0, 0, 33)]),
            )  # fmt: skip


def test_checks_of_values_do_not_wait_for_another_device():
    """On a tensor that is not on the CPU they look at nothing: meta tensors have no values."""
    from kernels.checks import check_no_nan, check_range

    check_range("ids", torch.empty(3, dtype=torch.int32, device="meta"), 0, 1)
    check_no_nan("bias", torch.empty(3, device="meta"))
