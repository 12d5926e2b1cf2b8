"""Routing and experts against loops over tokens."""

import math

import pytest
import torch


def silu(x):
    return x / (1 + torch.exp(-x))


def naive_expert(x, gate, up, down, limit):
    g, u = gate @ x, up @ x
    if limit and limit > 0:
        g, u = g.clamp(max=limit), u.clamp(-limit, limit)
    return down @ (silu(g) * u)


@pytest.fixture
def batch_of(ragged):
    def make(tokens, vocab=7):
        return ragged.scattered([tokens], 16).batch([(0, 0, tokens)], vocab)

    return make


@pytest.mark.parametrize(
    ("tokens", "experts", "topk"), [(1, 8, 2), (70, 8, 2), (9, 3, 3), (5, 33, 6)]
)
def test_scores_choose_with_the_bias_and_weigh_without_it(
    ops, randn, batch_of, tokens, experts, topk
):
    x, gate, bias = randn(tokens, 20), randn(experts, 20), randn(experts)
    ids, weights = ops.route(x, gate, bias, None, topk=topk, scaling=2.5, batch=batch_of(tokens))
    assert ids.dtype == torch.int32
    for t in range(tokens):
        logits = (gate.double() @ x[t].double()).tolist()
        scores = [math.sqrt(max(v, 0) + math.log1p(math.exp(-abs(v)))) for v in logits]
        order = sorted(range(experts), key=lambda e: (-(scores[e] + bias[e].item()), e))[:topk]
        total = sum(scores[e] for e in order)
        assert ids[t].tolist() == order
        expected = torch.tensor([scores[e] / total * 2.5 for e in order])
        torch.testing.assert_close(weights[t], expected, rtol=1e-5, atol=1e-6)


def test_ties_go_to_the_lowest_expert(ops, batch_of):
    x, gate = torch.ones(3, 4), torch.zeros(6, 4)
    gate[4] = gate[2] = 1.0
    ids, _ = ops.route(x, gate, None, None, topk=4, scaling=1.0, batch=batch_of(3))
    assert ids.tolist() == [[2, 4, 0, 1]] * 3


def test_hash_layers_take_their_experts_from_the_token_id(ops, randn, batch_of):
    batch = batch_of(20, vocab=7)
    table = torch.stack([torch.arange(7), (torch.arange(7) + 3) % 8], dim=1)
    for kind in (torch.int64, torch.int32):
        ids, weights = ops.route(
            randn(20, 5), randn(8, 5), None, table.to(kind), topk=2, scaling=1.5, batch=batch
        )
        assert ids.tolist() == table[batch.token_ids.long()].tolist()
        torch.testing.assert_close(weights.sum(1), torch.full((20,), 1.5))


def test_extreme_logits_neither_overflow_nor_vanish(ops, batch_of):
    x = torch.tensor([[-60.0], [60.0], [3e4], [-200.0]])
    gate = torch.tensor([[1.0], [0.9]])
    _, weights = ops.route(x, gate, None, None, topk=2, scaling=1.0, batch=batch_of(4))
    assert weights.isfinite().all()
    ratio = math.exp((-60 - -54) / 2)  # sqrt(softplus(v)) is exp(v / 2) far below zero
    torch.testing.assert_close(
        weights[0, 1] / weights[0, 0], torch.tensor(ratio), rtol=1e-4, atol=0
    )
    torch.testing.assert_close(weights[1, 0] / weights[1, 1], torch.tensor(math.sqrt(1 / 0.9)))


@pytest.mark.parametrize("limit", [None, 0.0, 1.0])
@pytest.mark.parametrize(("tokens", "hidden", "inner"), [(1, 16, 8), (150, 20, 9), (7, 256, 96)])
def test_experts_follow_the_formula(ops, randn, tokens, hidden, inner, limit):
    x, gate_up, down = randn(tokens, hidden), randn(5, 2 * inner, hidden), randn(5, hidden, inner)
    ids = torch.stack([torch.arange(tokens) % 3, torch.arange(tokens) % 2 + 3], dim=1).int()
    weights = randn(tokens, 2)
    got = ops.experts(x, ids, weights, gate_up, down, limit=limit)
    expected = torch.zeros(tokens, hidden, dtype=torch.float64)
    for t in range(tokens):
        for e, w in zip(ids[t].tolist(), weights[t].tolist(), strict=True):
            gate, up = gate_up[e].double().chunk(2)
            expected[t] += w * naive_expert(x[t].double(), gate, up, down[e].double(), limit)
    scale = expected.abs().max()
    torch.testing.assert_close(got / scale, (expected / scale).float(), rtol=1e-5, atol=2e-6)


def test_one_expert_twice_counts_twice(ops, randn):
    x, gate_up, down = randn(3, 16), randn(4, 8, 16), randn(4, 16, 4)
    twice = ops.experts(x, torch.full((3, 2), 2).int(), torch.ones(3, 2), gate_up, down, limit=10.0)
    once = ops.experts(x, torch.full((3, 1), 2).int(), torch.ones(3, 1), gate_up, down, limit=10.0)
    torch.testing.assert_close(twice, 2 * once)


@pytest.mark.parametrize("limit", [None, 0.5])
@pytest.mark.parametrize(("tokens", "hidden", "inner"), [(1, 256, 96), (130, 24, 7)])
def test_the_shared_expert_serves_every_token(ops, randn, tokens, hidden, inner, limit):
    x, gate, up, down = (
        randn(tokens, hidden),
        randn(inner, hidden),
        randn(inner, hidden),
        randn(hidden, inner),
    )
    got = ops.shared_expert(x, gate, up, down, limit=limit)
    weights = [w.double() for w in (gate, up, down)]
    expected = torch.stack([naive_expert(row.double(), *weights, limit) for row in x])
    scale = expected.abs().max()
    torch.testing.assert_close(got / scale, (expected / scale).float(), rtol=1e-5, atol=2e-6)


def test_a_token_has_the_same_bits_alone_and_among_strangers(native, randn, batch_of):
    x, gate_up, down, gate = randn(90, 32), randn(6, 20, 32), randn(6, 32, 10), randn(6, 32)
    ids, weights = native.route(x, gate, None, None, topk=2, scaling=1.5, batch=batch_of(90))
    together = native.experts(x, ids, weights, gate_up, down, limit=10.0)
    for t in (0, 41, 89):
        one = native.route(x[t : t + 1], gate, None, None, topk=2, scaling=1.5, batch=batch_of(1))
        assert torch.equal(one[0][0], ids[t])
        assert torch.equal(one[1][0], weights[t])
        alone = native.experts(x[t : t + 1], *one, gate_up, down, limit=10.0)
        assert torch.equal(alone[0], together[t])


def test_clamping_keeps_a_nan(ops):
    x = torch.tensor([[float("nan"), 1.0], [1.0, 1.0]])
    out = ops.shared_expert(x, torch.ones(3, 2), torch.ones(3, 2), torch.ones(2, 3), limit=1.0)
    assert out[0].isnan().all()
    assert out[1].isfinite().all()


def test_ids_and_shapes_that_do_not_fit_are_refused(ops, randn, batch_of):
    x, gate_up, down = randn(2, 4), randn(3, 6, 4), randn(3, 4, 3)
    with pytest.raises(ValueError, match=r"ids|experts"):
        ops.experts(x, torch.tensor([[3], [0]]).int(), torch.ones(2, 1), gate_up, down, limit=None)
    with pytest.raises(ValueError, match=r"gate_up: got 5 rows"):
        ops.experts(x, torch.zeros(2, 1).int(), torch.ones(2, 1), gate_up[:, :5], down, limit=None)
    with pytest.raises(ValueError, match=r"topk: got 4; accepted: 1..3"):
        ops.route(x, randn(3, 4), None, None, topk=4, scaling=1.0, batch=batch_of(2))
    with pytest.raises(ValueError, match=r"token_ids: got 6; accepted: 0\.\.0"):
        ops.route(
            x, randn(3, 4), None, torch.zeros(1, 1).int(), topk=1, scaling=1.0, batch=batch_of(2)
        )
    with pytest.raises(ValueError, match=r"tid2eid: got a table beside a bias"):
        ops.route(
            x,
            randn(3, 4),
            randn(3),
            torch.zeros(9, 1).int(),
            topk=1,
            scaling=1.0,
            batch=batch_of(2),
        )
