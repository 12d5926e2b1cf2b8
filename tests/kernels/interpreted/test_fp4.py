import pytest
import torch

from kernels.fp4 import product, quantise
from kernels.gpu import fp4 as gpu


@pytest.mark.parametrize("kind", ["mxfp4", "nvfp4"])
@pytest.mark.parametrize(("rows", "m", "k"), [(5, 70, 96), (17, 3, 32), (1, 64, 160)])
def test_the_kernel_is_its_arithmetic(device, randn, kind, rows, m, k):
    weights = randn(3, m, k) * torch.logspace(-3, 3, m)[None, :, None]
    weights[1, 0] = 0
    x = randn(rows, k)
    near, far = quantise(weights, kind), quantise(weights.to(device), kind)
    for expert in range(3):
        made = gpu.product(x.to(device), far, expert).cpu()
        torch.testing.assert_close(made, product(x, near, expert), rtol=3e-6, atol=3e-5)


@pytest.mark.parametrize("kind", ["mxfp4", "nvfp4"])
def test_a_weight_that_is_not_finite_poisons_its_block_alone(device, randn, kind):
    weights = randn(1, 4, 64)
    weights[0, 2, 5] = float("inf")
    made = gpu.product(randn(2, 64).to(device), quantise(weights.to(device), kind), 0)
    assert made[:, 2].isnan().all()
    assert made[:, :2].isfinite().all()
