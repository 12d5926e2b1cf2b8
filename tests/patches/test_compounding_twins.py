"""A stack of layers convicts grossly broken kernels by itself, however its errors saturate."""

import pytest
import torch

from fidelity.tensors import Stack
from fidelity.tensors.compounding import Declared, compounding_checks
from fidelity.words import Question
from tests.patches.test_broken_twins import Twin, convicted

STACK = "test_compounding"
TWINS = [
    Twin("mhc_bf16", "comb is transposed", "return y, post, comb",
         "return y, post, comb.transpose(1, 2).contiguous()", STACK),
    Twin("mhc_bf16", "post is doubled", "return y, post, comb", "return y, 2 * post, comb", STACK),
    Twin("splitk_decode", "the output is zero", "return merge(torch.stack(parts)",
         "return 0 * merge(torch.stack(parts)", STACK),
    Twin("splitk_decode", "the output is NaN", "return merge(torch.stack(parts)",
         "return float('nan') * merge(torch.stack(parts)", STACK),
    Twin("indexer_triton", "the worst entries are selected",
         "return select_top(scores, visible, topk)", "return select_top(-scores, visible, topk)",
         STACK),
    Twin("fp8_kv", "of a row the signs alone are kept",
         'made = torch.where(finite, made, float("nan")).flatten(1)',
         "made = torch.sign(made).flatten(1)", STACK),
    Twin("swiglu_clamp", "the routing weight is squared", "made * scale.float()[:, None]",
         "made * scale.float()[:, None].square()", STACK),
    Twin("moe_routed_scaling", "the factor is applied twice", "(scaling / (",
         "(scaling * scaling / (", STACK),
    Twin("mxfp4_experts", "nibbles are read in the wrong order",
         "torch.stack((packed & 15, packed >> 4)", "torch.stack((packed >> 4, packed & 15)", STACK,
         (), "fp4.py"),
    Twin("nvfp4_experts", "nibbles are read in the wrong order",
         "torch.stack((packed & 15, packed >> 4)", "torch.stack((packed >> 4, packed & 15)", STACK,
         (), "fp4.py"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.patch}: {twin.fault}")
def test_a_stack_convicts_a_gross_error_by_itself(twin, break_kernel, examine):
    convicted(twin, break_kernel, examine)


def checks_of(candidate, plain):
    """The implementation's checks over three layers of tanh, declared in bf16."""
    generator = torch.Generator().manual_seed(0)

    def step(op, x, layer):
        return x + 0.1 * op(x=x * (1 + layer))

    def maths(x):
        return torch.tanh(x.bfloat16().float())

    stack = Stack(
        step=step,
        start=torch.randn(8, 16, generator=generator),
        head=torch.randn(32, 16, generator=generator),
        depths=(1, 2, 3),
    )
    found = compounding_checks(
        candidate, torch.tanh, stack, where="here", declared=Declared(maths, plain)
    )
    return [c for c in found if c.question is Question.IMPLEMENTATION and c.holds is not None]


def in_bf16(x):
    return torch.tanh(x.bfloat16()).float()


def test_the_implementation_is_judged_at_every_depth():
    judged = checks_of(in_bf16, in_bf16)
    assert [c.holds for c in judged] == [True] * 3
    judged = checks_of(lambda x: 1.1 * in_bf16(x), in_bf16)
    assert [c.holds for c in judged] == [False] * 3
    assert "layers the state is" in judged[0].sentence


def test_a_broken_baseline_exonerates_nothing():
    judged = checks_of(in_bf16, lambda x: torch.full_like(x, float("nan")))
    assert not any(c.holds for c in judged)
