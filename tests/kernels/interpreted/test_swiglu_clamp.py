import pytest

from kernels.gpu import swiglu_clamp as gpu
from kernels.swiglu_clamp import swiglu


@pytest.mark.parametrize("limit", [10.0, 0.5, 0.0, None])
def test_the_kernel_is_its_arithmetic(agree, randn, limit):
    both = randn(13, 2 * 37) * 8
    gate, up = both.chunk(2, dim=1)  # strided, as an expert has them
    agree(gpu.swiglu, swiglu, gate, up, limit, None)
    agree(gpu.swiglu, swiglu, gate, up, limit, randn(13))
    agree(gpu.swiglu, swiglu, gate[:0], up[:0], limit, None)


def test_nan_and_inf_are_not_clamped_away(agree, randn):
    gate, up = randn(4, 8), randn(4, 8)
    gate[0, 1], gate[1, 2], gate[2, 3] = float("nan"), float("inf"), float("-inf")
    up[3, 4] = float("nan")
    made = agree(gpu.swiglu, swiglu, gate, up, 10.0, None)[0]
    assert made[0, 1].isnan()
    assert made[3, 4].isnan()
    assert made[1].isfinite().all()
