"""The torch definitions on a GPU say what they say on the CPU."""

import dataclasses

import pytest
import torch

from kernels import PagedBatch, Settings, bind

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def on_gpu(value):
    if isinstance(value, PagedBatch):
        names = [f.name for f in dataclasses.fields(value) if f.name not in ("cache", "page_size")]
        return dataclasses.replace(value, cache={}, **{n: on_gpu(getattr(value, n)) for n in names})
    if isinstance(value, tuple):
        return tuple(on_gpu(v) for v in value)
    return value.cuda() if isinstance(value, torch.Tensor) else value


@pytest.fixture
def gpu():
    settings = Settings(index_topk=4, index_head_dim=32)
    ops = bind([], device="cuda", dtype=torch.float32, settings=settings)
    assert ops.implementation == "torch"
    return ops


@pytest.fixture
def same(plain, gpu):
    """Call one op on both devices, compare what it returns and what it writes."""

    def call(name, *args, tolerance=2e-5, **kwargs):
        far = [on_gpu(a) for a in args]
        far_kwargs = {k: on_gpu(v) for k, v in kwargs.items()}
        near, got = getattr(plain, name)(*args, **kwargs), getattr(gpu, name)(*far, **far_kwargs)
        pairs = [*zip(args, far, strict=True)]
        pairs += zip(near, got, strict=True) if isinstance(near, tuple) else [(near, got)]
        for a, b in pairs:
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(
                    b.cpu(), a, rtol=tolerance, atol=tolerance, equal_nan=True
                )
        return near

    return call


def test_row_by_row_ops(same, randn):
    x, cos, sin = randn(9, 3, 24), randn(9, 4), randn(9, 4)
    same("rms_norm", x, randn(24), 1e-6)
    same("rope", x, cos, sin, rope_dim=8, inverse=True)
    same("norm_rope", x, None, cos, sin, eps=1e-6, rope_dim=8)
    same("linear", x, randn(10, 24))
    same("grouped_output", x.flatten(1), randn(8, 36), randn(5, 8), groups=2, tolerance=1e-4)
    streams, eps = randn(9, 4, 16), {"rms_eps": 1e-6, "hc_eps": 1e-5}
    fn, base = randn(24, 64) * 0.3, randn(24)
    _, post, comb = same("mhc_pre", streams, fn, base, randn(3), **eps, iters=20, tolerance=1e-4)
    same("mhc_post", randn(9, 16), streams, post, comb)
    same("mhc_head", streams, fn[:4], base[:4], randn(1), **eps)


def test_experts(same, ragged, randn):
    x, batch = randn(40, 24), ragged.scattered([40], 16).batch([(0, 0, 40)])
    ids, weights = same("route", x, randn(8, 24), randn(8), None, topk=2, scaling=1.5, batch=batch)
    same("experts", x, ids, weights, randn(8, 20, 24), randn(8, 24, 10), limit=10.0, tolerance=5e-4)
    same("shared_expert", x, randn(9, 24), randn(9, 24), randn(24, 9), limit=10.0, tolerance=5e-4)


def test_paged_ops(same, plain, gpu, ragged, randn):
    layout = ragged.scattered([70, 33, 12], 16)
    whole = layout.batch([(0, 0, 70), (1, 0, 33), (2, 0, 12)])
    later = layout.batch([(0, 50, 70), (1, 32, 33), (2, 11, 12)])
    window, pool = layout.poisoned(16, 24), layout.poisoned(4, 24)
    same("store_window", window, randn(115, 24), whole)
    ring, ape, table = layout.poisoned(8, 96), randn(4, 48), (randn(80, 4), randn(80, 4))
    entries, seq, index = same(
        "compress", randn(115, 48), randn(115, 48), ring, ape, randn(24), eps=1e-6, m=4,
        overlap=True, rope_dim=8, cos_sin=table, batch=whole,
    )  # fmt: skip
    same("store_entries", pool, entries, seq, index, 4, whole)
    q, weights, keys = randn(22, 5, 32), randn(22, 5), randn(entries.shape[0], 32)
    near = plain.index_keys.allocate(layout.pages, 4, 32, "cpu")
    far = gpu.index_keys.allocate(layout.pages, 4, 32, "cuda")
    plain.index_keys.store(near, keys, seq, index, 4, whole)
    gpu.index_keys.store(far, on_gpu(keys), on_gpu(seq), on_gpu(index), 4, on_gpu(whole))
    selected = plain.index_select(q, weights, near, m=4, topk=5, batch=later)
    got = gpu.index_select(on_gpu(q), on_gpu(weights), far, m=4, topk=5, batch=on_gpu(later))
    assert torch.equal(got.cpu(), selected)
    query, sinks, window_args = randn(22, 3, 24), randn(3), {"window": 6, "scale": 0.3}
    for chosen in (selected, None):
        same(
            "sparse_attention", query, window, pool, chosen, sinks, m=4, batch=later, **window_args
        )
    same("sparse_attention", query, window, None, None, sinks, m=None, batch=later, **window_args)


@pytest.mark.parametrize("value", ["fp8", "fp4", "int4", "int4,block,rotate", "bf16"])
def test_keys_are_rounded_to_the_same_bytes(bound, value):
    keys = bound("torch", f"index_keys={value}").index_keys
    rows = torch.randn(50, 32, generator=torch.Generator().manual_seed(5))
    near, far = keys.round(rows), keys.round(rows.cuda())
    for a, b in zip(near, far, strict=True):
        if a is not None:
            assert torch.equal(a.view(torch.uint8), b.cpu().view(torch.uint8))
