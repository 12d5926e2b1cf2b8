"""RMS norm and rotary embedding, both implementations against loops."""

import math

import pytest
import torch


def test_rms_norm_divides_by_the_root_of_the_mean_square(ops):
    x = torch.tensor([[3.0, -4.0, 0.0, 0.0]])
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    expected = torch.tensor([[3.0, -8.0, 0.0, 0.0]]) / math.sqrt(25 / 4 + 0.5)
    torch.testing.assert_close(ops.rms_norm(x, weight, 0.5), expected)
    torch.testing.assert_close(ops.rms_norm(x, None, 0.5), x / math.sqrt(25 / 4 + 0.5))


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 33), (2, 3, 16), (70, 128)])
def test_native_norm_agrees_at_any_width(native, plain, randn, shape):
    x, weight = randn(*shape), randn(shape[-1])
    for w in (weight, None):
        torch.testing.assert_close(native.rms_norm(x, w, 1e-6), plain.rms_norm(x, w, 1e-6))


def test_norm_reads_rows_of_a_wider_tensor(ops, randn):
    wide = randn(6, 40)
    view = wide[:, 8:24]
    torch.testing.assert_close(
        ops.rms_norm(view, None, 1e-6), ops.rms_norm(view.contiguous(), None, 1e-6), rtol=0, atol=0
    )


def test_rope_turns_adjacent_pairs_of_the_tail_only(ops):
    x = torch.tensor([[[9.0, 1.0, 2.0, 3.0, 4.0]]])
    cos, sin = torch.tensor([[0.6, 0.0]]), torch.tensor([[0.8, 1.0]])
    got = ops.rope(x, cos, sin, rope_dim=4)
    expected = [9.0, 0.6 - 1.6, 1.2 + 0.8, -4.0, 3.0]
    torch.testing.assert_close(got, torch.tensor([[expected]]))
    assert x[0, 0].tolist() == [9.0, 1.0, 2.0, 3.0, 4.0]  # the input stays as it was
    torch.testing.assert_close(ops.rope(got, cos, sin, rope_dim=4, inverse=True), x)


@pytest.mark.parametrize(("heads", "dim", "rope_dim"), [(1, 8, 8), (3, 20, 6), (4, 128, 32)])
def test_norm_rope_is_norm_then_rope(ops, plain, randn, heads, dim, rope_dim):
    x, weight = randn(5, heads, dim), randn(dim)
    cos, sin = randn(5, rope_dim // 2), randn(5, rope_dim // 2)
    for w in (weight, None):
        got = ops.norm_rope(x, w, cos, sin, eps=1e-6, rope_dim=rope_dim)
        expected = plain.rope(plain.rms_norm(x, w, 1e-6), cos, sin, rope_dim=rope_dim)
        torch.testing.assert_close(got, expected)


def test_a_row_does_not_depend_on_the_rows_beside_it(native, randn):
    x, cos, sin = randn(9, 2, 24), randn(9, 4), randn(9, 4)
    all_rows = native.norm_rope(x, None, cos, sin, eps=1e-6, rope_dim=8)
    one = native.norm_rope(x[4:5], None, cos[4:5], sin[4:5], eps=1e-6, rope_dim=8)
    assert torch.equal(one, all_rows[4:5])


@pytest.mark.parametrize(
    ("rope_dim", "words"), [(3, "even number"), (6, "cos: got shape"), (16, "rope_dim: got 16")]
)
def test_a_rope_that_does_not_fit_is_refused(ops, randn, rope_dim, words):
    with pytest.raises(ValueError, match=words):
        ops.rope(randn(2, 1, 8), randn(2, 2), randn(2, 2), rope_dim=rope_dim)
    with pytest.raises(ValueError, match=r"weight: got shape \[3\]"):
        ops.rms_norm(randn(2, 8), randn(3), 1e-6)


def test_native_ops_refuse_other_dtypes_in_words(native):
    with pytest.raises(ValueError, match=r"x: got torch.bfloat16 on cpu; accepted: float32"):
        native.rms_norm(torch.zeros(2, 4, dtype=torch.bfloat16), None, 1e-6)
