"""Hyper-connections against loops over scalars."""

import math

import pytest
import torch

EPS = {"rms_eps": 1e-4, "hc_eps": 1e-3}  # distinct, so that a swap shows


def naive_pre(x, fn, base, scale, iters):
    """One token, x [n][H] as lists; double precision."""
    n, hidden = len(x), len(x[0])
    flat = [v for row in x for v in row]
    norm = 1 / math.sqrt(sum(v * v for v in flat) / len(flat) + EPS["rms_eps"])
    mix = [sum(a * b for a, b in zip(row, flat, strict=True)) * norm for row in fn]
    sigmoid = lambda v: 1 / (1 + math.exp(-v))  # noqa: E731
    pre = [sigmoid(mix[j] * scale[0] + base[j]) + EPS["hc_eps"] for j in range(n)]
    post = [2 * sigmoid(mix[n + j] * scale[1] + base[n + j]) for j in range(n)]
    at = lambda j, k: 2 * n + j * n + k  # noqa: E731
    c = [[math.exp(mix[at(j, k)] * scale[2] + base[at(j, k)]) for k in range(n)] for j in range(n)]
    c = [[v / sum(row) + EPS["hc_eps"] for v in row] for row in c]
    for step in range(2 * iters - 1):
        if step % 2 == 0:
            sums = [sum(c[j][k] for j in range(n)) + EPS["hc_eps"] for k in range(n)]
            c = [[c[j][k] / sums[k] for k in range(n)] for j in range(n)]
        else:
            c = [[v / (sum(row) + EPS["hc_eps"]) for v in row] for row in c]
    y = [sum(pre[j] * x[j][d] for j in range(n)) for d in range(hidden)]
    return y, post, c


def parameters(randn, n, hidden):
    return randn((2 + n) * n, n * hidden) * 0.3, randn((2 + n) * n), randn(3)


@pytest.mark.parametrize(("n", "hidden", "iters"), [(4, 8, 20), (2, 5, 3), (1, 3, 1), (3, 40, 2)])
def test_pre_follows_the_formula(ops, randn, n, hidden, iters):
    x = randn(3, n, hidden)
    fn, base, scale = parameters(randn, n, hidden)
    y, post, comb = ops.mhc_pre(x, fn, base, scale, **EPS, iters=iters)
    for t in range(3):
        lists = [v.double().tolist() for v in (x[t], fn, base, scale)]
        expected = naive_pre(*lists, iters)
        for got, want in zip((y, post, comb), expected, strict=True):
            torch.testing.assert_close(got[t], torch.tensor(want).float(), rtol=2e-5, atol=2e-6)


def test_mixing_ends_on_columns(ops, randn):
    fn, base, scale = parameters(randn, 4, 16)
    _, _, comb = ops.mhc_pre(randn(50, 4, 16), fn, base, scale, rms_eps=1e-6, hc_eps=1e-6, iters=2)
    torch.testing.assert_close(comb.sum(1), torch.ones(50, 4), rtol=0, atol=1e-5)
    assert (comb.sum(2) - 1).abs().max() > 1e-3  # two iterations do not converge


def test_post_takes_the_first_index_of_comb_as_the_source(ops):
    comb = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])  # stream 0 flows into stream 1
    streams = torch.tensor([[[5.0], [7.0]]])
    out = ops.mhc_post(torch.tensor([[10.0]]), streams, torch.tensor([[0.5, 2.0]]), comb)
    assert out.tolist() == [[[5.0], [25.0]]]


@pytest.mark.parametrize(
    ("tokens", "n", "hidden"), [(1, 4, 256), (37, 4, 30), (70, 2, 17), (5, 8, 4)]
)
def test_native_agrees_at_irregular_sizes(native, plain, randn, tokens, n, hidden):
    x, f = randn(tokens, n, hidden), randn(tokens, hidden)
    fn, base, scale = parameters(randn, n, hidden)
    got = native.mhc_pre(x, fn, base, scale, **EPS, iters=20)
    want = plain.mhc_pre(x, fn, base, scale, **EPS, iters=20)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)
    _, post, comb = want
    torch.testing.assert_close(
        native.mhc_post(f, x, post, comb), plain.mhc_post(f, x, post, comb), rtol=1e-5, atol=1e-5
    )
    head = (fn[:n], base[:n], scale[:1])
    torch.testing.assert_close(
        native.mhc_head(x, *head, **EPS), plain.mhc_head(x, *head, **EPS), rtol=1e-4, atol=2e-5
    )


def test_head_adds_its_epsilon_and_does_not_normalise(ops):
    streams = torch.tensor([[[1.0], [1.0]]])
    y = ops.mhc_head(streams, torch.zeros(2, 2), torch.zeros(2), torch.ones(1), **EPS)
    torch.testing.assert_close(y, torch.tensor([[2 * (0.5 + EPS["hc_eps"])]]))


def test_a_token_does_not_depend_on_its_batch(native, randn):
    x = randn(67, 4, 48)
    fn, base, scale = parameters(randn, 4, 48)
    together = native.mhc_pre(x, fn, base, scale, **EPS, iters=20)
    for t in (0, 15, 33, 66):
        alone = native.mhc_pre(x[t : t + 1], fn, base, scale, **EPS, iters=20)
        assert all(torch.equal(a[0], b[t]) for a, b in zip(alone, together, strict=True))


def test_a_nan_stays_in_its_token(native, randn):
    x = randn(20, 4, 16)
    fn, base, scale = parameters(randn, 4, 16)
    clean = native.mhc_pre(x, fn, base, scale, **EPS, iters=4)[2]
    x[7, 1, 3] = float("nan")
    comb = native.mhc_pre(x, fn, base, scale, **EPS, iters=4)[2]
    assert comb[7].isnan().all()
    rest = [t for t in range(20) if t != 7]
    assert torch.equal(comb[rest], clean[rest])


def test_wrong_shapes_are_refused(ops, randn):
    fn, base, scale = parameters(randn, 4, 8)
    with pytest.raises(ValueError, match=r"fn: got shape \[24, 32\]; accepted: shape \[24, 36\]"):
        ops.mhc_pre(randn(2, 4, 9), fn, base, scale, **EPS, iters=2)
    with pytest.raises(ValueError, match=r"iters: got 0; accepted: at least 1"):
        ops.mhc_pre(randn(2, 4, 8), fn, base, scale, **EPS, iters=0)
    with pytest.raises(ValueError, match=r"comb: got shape"):
        ops.mhc_post(randn(2, 8), randn(2, 4, 8), randn(2, 4), randn(2, 4, 3))
