import pytest

from kernels.gpu import mhc_bf16 as gpu
from kernels.mhc_bf16 import mhc_pre

EPS = {"rms_eps": 1e-4, "hc_eps": 1e-3}


@pytest.mark.parametrize(
    ("tokens", "n", "hidden", "iters"),
    [(5, 4, 72, 20), (33, 4, 96, 2), (7, 3, 40, 1), (4, 1, 32, 3), (3, 8, 33, 4), (2, 2, 300, 2)],
)
def test_the_kernel_is_its_arithmetic(agree, randn, tokens, n, hidden, iters):
    fn = randn((2 + n) * n, n * hidden) * 0.1
    agree(
        gpu.mhc_pre, mhc_pre, randn(tokens, n, hidden), fn, randn((2 + n) * n), randn(3),
        **EPS, iters=iters,
    )  # fmt: skip


def test_nan_and_no_tokens(agree, randn):
    streams = randn(20, 4, 40)
    streams[7, 2, 3] = float("nan")
    parameters = (randn(24, 160) * 0.1, randn(24), randn(3))
    y, _, comb = agree(gpu.mhc_pre, mhc_pre, streams, *parameters, **EPS, iters=3)
    assert y[7].isnan().all()
    assert comb[7].isnan().all()
    assert not y[8].isnan().any()
    agree(gpu.mhc_pre, mhc_pre, streams[:0], *parameters, **EPS, iters=3)
    with pytest.raises(ValueError, match=r"fn: got shape \[24, 159\]"):
        gpu.mhc_pre(streams, parameters[0][:, :159], *parameters[1:], **EPS, iters=3)
