import pytest

from kernels.gpu import moe_routed_scaling as gpu
from kernels.moe_routed_scaling import choose


@pytest.mark.parametrize(
    ("tokens", "experts", "topk"), [(5, 8, 2), (3, 37, 6), (4, 6, 6), (1, 1, 1)]
)
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_kernel_is_its_arithmetic(agree, randn, tokens, experts, topk, with_bias):
    logits = randn(tokens, experts) * 4
    bias = randn(experts) if with_bias else None
    agree(gpu.choose, choose, logits, bias, None, topk, 2.5)
    ids = randn(tokens, experts).argsort(1)[:, :topk].contiguous()
    agree(gpu.choose, choose, logits, None, ids, topk, 1.5)


def test_ties_extremes_and_nan(agree, randn):
    logits = randn(6, 8)
    logits[0] = 1.0  # all equal: the lowest ids
    logits[1, 3:6] = logits[1, 0]
    logits[2] = -300.0  # every score underflows
    logits[3] = 300.0
    logits[4, 5] = float("nan")
    logits[5, 2], logits[5, 6] = -20.0, float("-inf")
    ids, weights = agree(gpu.choose, choose, logits, None, None, 3, 2.5)
    assert ids[0].tolist() == [0, 1, 2]
    assert weights[4].isnan().all()
    agree(gpu.choose, choose, logits[:0], None, None, 3, 2.5)
