"""Candidates of the patches in batches of every kind, and what they refuse."""

import pytest
import torch

from kernels import Settings, bind
from kernels.fp4 import quantise
from kernels.fp8_kv import round_rows
from kernels.fp8_rows import pack
from kernels.mhc_bf16 import mhc_pre
from kernels.patch import PatchUnsupported
from kernels.swiglu_clamp import swiglu

SETTINGS = Settings(
    index_topk=4, index_head_dim=32, implementation="torch", head_dim=24, rope_dim=8
)


def ops_with(*patches):
    return bind(patches, device="cpu", dtype=torch.float32, settings=SETTINGS)


@pytest.fixture
def mixed(ragged):
    """Prefill, decode, prefill, decode side by side; and which tokens are decoded."""
    layout = ragged.scattered([50, 33, 20, 41], 16)
    batch = layout.batch([(0, 30, 50), (1, 32, 33), (2, 0, 20), (3, 40, 41)])
    return layout, batch, [20, 41]


def alone(layout, row, position):
    return layout.batch([(row, position, position + 1)])


def test_attention_of_a_mixed_batch_is_that_of_its_parts(mixed, randn):
    layout, batch, decoded = mixed
    on, off = ops_with("splitk_decode"), ops_with()
    window, entries = randn(layout.pages, 16, 24), randn(layout.pages, 4, 24)
    q, sinks = randn(42, 3, 24), randn(3)
    picks = torch.stack([torch.randperm(12)[:5] for _ in range(42)]).int()
    options = {"window": 9, "m": 4, "scale": 0.3}
    made = on.sparse_attention(q, window, entries, picks, sinks, batch=batch, **options)
    plain = off.sparse_attention(q, window, entries, picks, sinks, batch=batch, **options)
    prefilled = [t for t in range(42) if t not in decoded]
    assert torch.equal(made[prefilled], plain[prefilled])
    assert not torch.equal(made[decoded], plain[decoded])
    torch.testing.assert_close(made[decoded], plain[decoded], rtol=0.05, atol=0.02)
    for t, row, position in ((20, 1, 32), (41, 3, 40)):
        one = on.sparse_attention(
            q[t : t + 1], window, entries, picks[t : t + 1], sinks,
            batch=alone(layout, row, position), **options,
        )  # fmt: skip
        torch.testing.assert_close(one[0], made[t], rtol=1e-6, atol=1e-6)
    assert on.calls["patch.splitk_decode"] == 3


def test_selection_of_a_mixed_batch_is_that_of_its_parts(mixed, randn):
    layout, batch, decoded = mixed
    on, off = ops_with("indexer_triton"), ops_with()
    storage = on.index_keys.allocate(layout.pages, 4, 32, "cpu")
    storage.codes.copy_(randn(layout.pages, 4, 32))
    q, weights = randn(42, 5, 32), randn(42, 5)
    made = on.index_select(q, weights, storage, m=4, topk=4, batch=batch)
    plain = off.index_select(q, weights, storage, m=4, topk=4, batch=batch)
    assert torch.equal(made, plain)  # far from any tie
    for t, row, position in ((20, 1, 32), (41, 3, 40)):
        batch_of_one = alone(layout, row, position)
        one = on.index_select(
            q[t : t + 1], weights[t : t + 1], storage, m=4, topk=4, batch=batch_of_one
        )
        assert torch.equal(one[0], made[t])
    assert on.calls["patch.indexer_triton"] == 3
    assert decoded == [20, 41]


def test_a_batch_without_decode_tokens_never_reaches_the_kernel(ragged, randn):
    layout = ragged.scattered([30], 16)
    batch = layout.batch([(0, 0, 30)])
    on = ops_with("splitk_decode")
    on.sparse_attention(
        randn(30, 2, 24), randn(layout.pages, 16, 24), None, None, randn(2),
        window=8, m=None, scale=0.3, batch=batch,
    )  # fmt: skip
    assert on.calls["patch.splitk_decode"] == 0


def test_the_parts_of_a_batch_are_valid_batches(mixed):
    layout, batch, decoded = mixed
    decode, rest = batch.split()
    for part in (decode, rest):
        part.batch.validate(pages=layout.pages)
        assert torch.equal(part.batch.positions, batch.positions[part.tokens])
        assert torch.equal(part.batch.window_slots(), batch.window_slots()[part.tokens])
    assert decode.tokens.tolist() == decoded
    assert sorted([*decode.tokens.tolist(), *rest.tokens.tolist()]) == list(range(42))


def mhc(**changes):
    given = {
        "streams": torch.randn(3, 4, 8), "fn": torch.randn(24, 32), "base": torch.randn(24),
        "scale": torch.randn(3), "rms_eps": 1e-6, "hc_eps": 1e-6, "iters": 2,
    }  # fmt: skip
    return mhc_pre(**given | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"streams": torch.randn(3, 32)}, r"streams: got shape \[3, 32\]; accepted"),
        ({"streams": torch.randn(3, 9, 8)}, r"streams: got 9 streams; accepted: 1..8"),
        ({"streams": torch.ones(3, 4, 8).double()}, r"streams: got torch.float64; accepted"),
        ({"fn": torch.randn(24, 31)}, r"fn: got shape \[24, 31\]; accepted: shape \[24, 32\]"),
        ({"base": torch.ones(24).int()}, r"base: got torch.int32; accepted"),
        ({"rms_eps": float("nan")}, r"rms_eps: got nan; accepted: a finite number >= 0"),
        ({"hc_eps": -1.0}, r"hc_eps: got -1.0"),
        ({"iters": 0}, r"iters: got 0; accepted: at least 1"),
    ],
)
def test_mixing_refuses_in_words(changes, words):
    with pytest.raises(ValueError, match=words):
        mhc(**changes)


def test_the_others_refuse_in_words(ragged, randn):
    with pytest.raises(ValueError, match=r"up: got shape \[2, 4\]; accepted"):
        swiglu(randn(2, 3), randn(2, 4), 1.0, None)
    with pytest.raises(ValueError, match=r"scale: got shape \[3\]; accepted: shape \[2\]"):
        swiglu(randn(2, 3), randn(2, 3), 1.0, randn(3))
    with pytest.raises(ValueError, match=r"weights: got 40 channels; accepted: a multiple"):
        quantise(randn(2, 3, 40), "mxfp4")
    with pytest.raises(ValueError, match=r"kind: got int3; accepted: mxfp4, nvfp4"):
        quantise(randn(2, 3, 32), "int3")
    with pytest.raises(ValueError, match=r"block: got 32; accepted: a divisor of 40 channels"):
        round_rows(randn(2, 48), rope_dim=8, block=32)
    batch = ragged.scattered([9], 16).batch([(0, 8, 9)])
    route = ops_with("moe_routed_scaling").route
    with pytest.raises(ValueError, match=r"topk: got 9; accepted: 1..8 experts"):
        route(randn(1, 6), randn(8, 6), None, None, topk=9, scaling=1.0, batch=batch)
    with pytest.raises(ValueError, match=r"scaling: got nan; accepted: a finite number > 0"):
        route(randn(1, 6), randn(8, 6), None, None, topk=2, scaling=float("nan"), batch=batch)
    table = torch.full((7, 2), 11)
    with pytest.raises(ValueError, match=r"tid2eid: got expert 11; accepted: 0..7"):
        route(randn(1, 6), randn(8, 6), None, table, topk=2, scaling=1.0, batch=batch)
    with pytest.raises(ValueError, match=r"token_ids: got up to 6; accepted: 0..2"):
        route(randn(1, 6), randn(8, 6), None, table[:3], topk=2, scaling=1.0, batch=batch)
    experts = ops_with("mxfp4_experts").experts
    for wrong in (4, -1):
        ids = torch.tensor([[wrong]], dtype=torch.int32)
        with pytest.raises(ValueError, match=rf"ids: got expert {wrong}; accepted: 0..3"):
            experts(randn(1, 32), ids, randn(1, 1), randn(4, 64, 32), randn(4, 32, 32), limit=None)
    attention = ops_with("splitk_decode").sparse_attention
    with pytest.raises(ValueError, match=r"scale: got inf; accepted: a finite number > 0"):
        attention(
            randn(1, 2, 24), randn(9, 16, 24), None, None, randn(2),
            window=3, m=None, scale=float("inf"), batch=batch,
        )  # fmt: skip


def test_views_of_pools_are_refused(ragged, randn):
    batch = ragged.scattered([9], 16).batch([(0, 8, 9)])
    attention = ops_with("splitk_decode").sparse_attention
    options = {"window": 3, "m": None, "scale": 0.3, "batch": batch}
    view = randn(9, 16, 40)[..., :24]
    with pytest.raises(ValueError, match=r"window_pool: got strides .*; accepted: a contiguous"):
        attention(randn(1, 2, 24), view, None, None, randn(2), **options)
    packed = pack(randn(9, 16, 24).bfloat16(), rope_dim=8, block=16)
    attention(randn(1, 2, 24), packed, None, None, randn(2), **options)
    view = packed._replace(tail=randn(9, 16, 24).bfloat16()[..., 16:])
    with pytest.raises(ValueError, match=r"window_pool: got strides"):
        attention(randn(1, 2, 24), view, None, None, randn(2), **options)
    with pytest.raises(ValueError, match=r"window_pool: got torch.float32 on cpu"):
        attention(
            randn(1, 2, 24), packed._replace(tail=packed.tail.float()), None, None, randn(2),
            **options,
        )  # fmt: skip
    with pytest.raises(ValueError, match=r"entries_pool: got Tensor; accepted: rows of the same"):
        attention(randn(1, 2, 24), packed, randn(9, 4, 24), None, randn(2), **options | {"m": 4})


@pytest.mark.parametrize(
    ("patches", "settings", "words"),
    [
        (["mhc_bf16=yes"], SETTINGS, r"mhc_bf16 .*value 'yes'; accepted: on, off"),
        (["default_thinking=1"], SETTINGS, r"default_thinking .*accepted: on, off"),
        (["mxfp4_experts", "nvfp4_experts"], SETTINGS, r"another format of the experts is on"),
        (["fp8_kv"], Settings(index_topk=1, index_head_dim=32), r"head_dim is not known"),
        (
            ["fp8_kv"],
            Settings(index_topk=1, index_head_dim=32, head_dim=27, rope_dim=8),
            r"fp8_kv .*27 channels with 8 rotated; accepted: a multiple of 16",
        ),
    ],
)
def test_what_cannot_be_bound_is_refused(patches, settings, words):
    with pytest.raises(PatchUnsupported, match=words):
        bind(patches, device="cpu", dtype=torch.float32, settings=settings)


def test_without_triton_a_patch_on_cuda_names_the_package(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(PatchUnsupported, match=r"needs the package triton: pip install triton"):
        bind(["mhc_bf16"], device="cuda", dtype=torch.float32, settings=SETTINGS)
