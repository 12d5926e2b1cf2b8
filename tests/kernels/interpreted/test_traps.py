"""Two traps of Triton's interpreter that our kernels walk around; here to be seen when they go."""

import pytest
import torch
import triton
import triton.language as tl

from kernels.gpu.launch import is_interpreted
from kernels.gpu.rounding import to_bf16


@triton.jit
def product(a, b, out, EMULATE: tl.constexpr, BY_HAND: tl.constexpr):
    i = tl.arange(0, 16)
    x, y = tl.load(a + i[:, None] * 16 + i[None, :]), tl.load(b + i[:, None] * 16 + i[None, :])
    if BY_HAND:
        made = tl.dot(to_bf16(x, EMULATE), to_bf16(y, EMULATE))
    else:
        made = tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16))
    tl.store(out + i[:, None] * 16 + i[None, :], made)


@triton.jit
def cast(a, out, EMULATE: tl.constexpr, BY_HAND: tl.constexpr):
    i = tl.arange(0, 256)
    x = tl.load(a + i)
    x = to_bf16(x, EMULATE) if BY_HAND else x.to(tl.bfloat16)
    tl.store(out + i, x.to(tl.float32))


def test_a_product_of_bf16_is_wrong_unless_done_in_fp32(randn, device):
    a, b = randn(16, 16).to(device), randn(16, 16).to(device)
    right = a.bfloat16().float() @ b.bfloat16().float()
    for by_hand in (True, False):
        out = torch.empty_like(right)
        product[(1,)](a, b, out, EMULATE=is_interpreted(product), BY_HAND=by_hand)
        wrong = float((out - right).abs().max()) > 1e-4
        assert wrong == (is_interpreted(product) and not by_hand)


def test_a_cast_to_bf16_cuts_off_unless_done_by_hand(randn, device):
    x = randn(256).to(device)
    for by_hand in (True, False):
        out = torch.empty_like(x)
        cast[(1,)](x, out, EMULATE=is_interpreted(cast), BY_HAND=by_hand)
        rounded = torch.equal(out, x.bfloat16().float())
        assert rounded == (by_hand or not is_interpreted(cast))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 3.3e38])
def test_rounding_by_hand_keeps_what_is_special(value, device):
    x = torch.full((256,), value, device=device)
    out = torch.empty_like(x)
    cast[(1,)](x, out, EMULATE=is_interpreted(cast), BY_HAND=True)
    assert torch.equal(out.nan_to_num(7), x.bfloat16().float().nan_to_num(7))
