"""Products with weights: values, any shape, and the same bits for a row in any batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 31])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (31, 5), (33, 64), (128, 256), (300, 17)])
def test_linear_is_a_matrix_product(ops, randn, rows, n, k):
    x, w = randn(rows, k), randn(n, k)
    expected = (x.double() @ w.double().T).float()
    torch.testing.assert_close(ops.linear(x, w), expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_row_has_the_same_bits_in_every_batch(native, data):
    rows, n, k = (data.draw(st.integers(1, top)) for top in (40, 200, 90))
    generator = torch.Generator().manual_seed(rows * n + k)
    x, w = torch.randn(rows, k, generator=generator), torch.randn(n, k, generator=generator)
    first = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(1, rows - first))
    assert torch.equal(
        native.linear(x[first : first + count], w), native.linear(x, w)[first : first + count]
    )


def test_linear_reads_views_and_more_dimensions(ops, randn):
    wide, w = randn(6, 3, 20), randn(9, 10)
    expected = wide[..., 5:15].contiguous().double() @ w.double().T
    torch.testing.assert_close(
        ops.linear(wide[..., 5:15], w), expected.float(), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(
        ops.linear(wide[:, 0, 5:15], w), expected[:, 0].float(), rtol=1e-5, atol=1e-5
    )


def test_a_weight_changed_in_place_is_packed_again(native, randn):
    x, w = randn(2, 16), randn(4, 16)
    before = native.linear(x, w)
    w.mul_(2)
    torch.testing.assert_close(native.linear(x, w), before * 2)


def test_memory_that_held_another_weight_is_not_mistaken_for_it(native, randn):
    x = randn(2, 64)
    for _ in range(20):
        w = randn(32, 64)
        torch.testing.assert_close(native.linear(x, w), x @ w.T, rtol=1e-4, atol=1e-4)
        del w


def test_inference_tensors_are_weights_too(native, randn):
    with torch.inference_mode():
        x, w = randn(3, 8) + 0, randn(5, 8) + 0
        torch.testing.assert_close(native.linear(x, w), x @ w.T)


@pytest.mark.parametrize(
    ("tokens", "groups", "width", "rank", "hidden"), [(1, 2, 256, 64, 256), (70, 3, 20, 5, 33)]
)
def test_each_group_has_its_own_matrix(ops, randn, tokens, groups, width, rank, hidden):
    o, a, b = (
        randn(tokens, groups * width),
        randn(groups * rank, width),
        randn(hidden, groups * rank),
    )
    z = [
        o[:, g * width :][:, :width].double() @ a[g * rank :][:rank].double().T
        for g in range(groups)
    ]
    expected = (torch.cat(z, dim=1) @ b.double().T).float()
    got = ops.grouped_output(o, a, b, groups=groups)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=2e-3)


def test_shapes_that_do_not_fit_are_refused(ops, randn):
    with pytest.raises(ValueError, match=r"w: got shape \[3, 5\]; accepted: shape \['any', 4\]"):
        ops.linear(randn(2, 4), randn(3, 5))
    with pytest.raises(ValueError, match=r"groups: got 3"):
        ops.grouped_output(randn(2, 8), randn(4, 4), randn(5, 4), groups=3)
