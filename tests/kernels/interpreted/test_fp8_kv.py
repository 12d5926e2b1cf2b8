import pytest
import torch

from kernels.fp8_kv import round_rows
from kernels.gpu import fp8_kv as gpu


@pytest.mark.parametrize(
    ("rows", "dim", "rope", "block"), [(5, 128, 32, 32), (17, 48, 0, 16), (3, 200, 8, 64)]
)
def test_the_kernel_is_its_arithmetic(agree, randn, rows, dim, rope, block):
    x = randn(rows, dim) * torch.logspace(-4, 4, dim)
    x[0, :block] = 0
    agree(gpu.round_rows, round_rows, x, rope_dim=rope, block=block, tolerance=0)
    agree(gpu.round_rows, round_rows, x[:0], rope_dim=rope, block=block)


def test_what_is_not_finite_poisons_its_block_alone(agree, randn):
    x = randn(4, 128)
    x[1, 3], x[2, 40], x[3, 120] = float("nan"), float("-inf"), float("inf")
    made = agree(gpu.round_rows, round_rows, x, rope_dim=32, block=32)[0]
    assert made[1, :32].isnan().all()
    assert made[2, 32:64].isnan().all()
    assert made[3, :96].isfinite().all()


def test_every_halfway_point_goes_to_the_even_value(agree):
    grid = torch.arange(0, 127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    middle = (grid[1:] + grid[:-1]) / 2
    x = torch.zeros(8, 32)
    x.view(-1)[:126] = middle
    x[:, -1] = 448.0
    agree(gpu.round_rows, round_rows, x, rope_dim=0, block=32, tolerance=0)
