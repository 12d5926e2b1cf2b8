"""Experts with clamp, activation and routing weight in one pass.

Claim: the gate is clamped above only and before silu, up on both sides, the routing weight enters
  once, for routed experts and for the shared one, erring at most twice as much as plain torch.
Why it breaks in practice: refactorings lose the clamp for the routed or for the shared expert, and
  stray tokens appear only where activations are large.
A failure means: large activations come through, or every activation is changed.
Cost: about 5 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Op
from kernels.baseline import moe as plain
from reference import experts as reference
from suites.patches import expert_inputs, flash_shapes
from suites.patches.binding import bound, bound_without, on_cpu
from suites.patches.declared import declared
from suites.patches.examination import Examination
from suites.patches.expert_inputs import LIMIT, plain_experts
from suites.patches.harvest import Harvest
from suites.patches.harvested_inputs import clamped_frac, expert_cases, shared_expert_cases
from suites.patches.synthetic import normal, structured

KEEP = ("weights",)


def shared(op: Op) -> Op:
    """`shared_expert` by the reference's names."""
    return lambda x, w_gate, w_up, w_down, limit: op(x, w_gate, w_up, w_down, limit=limit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_routed_experts(examination: Examination, dtype: torch.dtype) -> None:
    """Clamped and not; noise, outliers, sparse and equal rows, all sizes; NaN and Inf."""
    ops = bound(examination)
    examination.patch(
        ops.experts,
        plain_experts,
        reference.routed_experts,
        expert_inputs.cases(examination.generator(), 24, 5, 37, 60),
        dtype=dtype,
        keep=KEEP,
        row_inputs=("x", "ids", "weights"),
        special=("x",),
        calls=lambda: ops.calls["patch.swiglu_clamp"],
    )


def test_shapes_of_the_large_model(examination: Examination) -> None:
    """Sums over 4,096 and over 2,048 channels."""
    ops = bound(examination)
    examination.patch(
        ops.experts,
        plain_experts,
        reference.routed_experts,
        flash_shapes.expert_cases(examination.generator(), 5),
        dtype=torch.bfloat16,
        keep=KEEP,
        calls=lambda: ops.calls["patch.swiglu_clamp"],
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shared_expert(examination: Examination, dtype: torch.dtype) -> None:
    """The same clamp, without a routing weight."""
    ops, generator = bound(examination), examination.generator()
    inner, hidden = 37, 60
    fixed = {
        "w_gate": normal(generator, inner, hidden),
        "w_up": normal(generator, inner, hidden),
        "w_down": normal(generator, hidden, inner) * inner**-0.5,
        "limit": LIMIT,
    }
    cases = [Case(name, {"x": x, **fixed}) for name, x in structured(generator, 24, hidden)]
    examination.patch(
        shared(ops.shared_expert),
        shared(plain.shared_expert),
        reference.expert,
        cases,
        dtype=dtype,
        row_inputs=("x",),
        special=("x",),
        must_differ=False,
        calls=lambda: ops.calls["patch.swiglu_clamp"],
    )


@given(
    tokens=st.integers(1, 30),
    experts=st.integers(2, 6),
    inner=st.integers(1, 80),
    hidden=st.integers(1, 80),
    limit=st.sampled_from([None, 0.0, 0.5, 10.0]),
)
def test_irregular_shapes(
    examination: Examination,
    tokens: int,
    experts: int,
    inner: int,
    hidden: int,
    limit: float | None,
) -> None:
    """Any number of tokens, experts and channels, and any limit."""
    generator = examination.generator()
    arguments: dict[str, Tensor | float | None] = {
        "x": normal(generator, tokens, hidden) * 3,
        **expert_inputs.routing(generator, tokens, experts, 2),
        **expert_inputs.weights_of(generator, experts, inner, hidden),
        "limit": limit,
    }
    examination.patch(
        bound(examination).experts,
        plain_experts,
        reference.routed_experts,
        Case(f"{tokens} tokens, {experts} experts {hidden}x{inner}, limit {limit}", arguments),
        dtype=torch.float32,
        keep=KEEP,
        must_differ=False,
    )


def test_compounding(examination: Examination) -> None:
    """21, 43 and 61 layers of experts: near the format's maths, and no growth."""
    stack = expert_inputs.stack(examination.generator())
    examination.compounding(
        bound(examination).experts,
        reference.routed_experts,
        stack,
        declared=declared(reference.routed_experts, plain_experts),
    )


def test_whole_model(examination: Examination) -> None:
    """All routed experts of a checkpoint: KL at the logits."""
    examination.whole_model(routed_experts=on_cpu(examination, bound(examination).experts))


def test_harvested_rows(harvested: Examination, harvest: Harvest) -> None:
    """What the experts of a running engine saw, on their weights; its text at the logits."""
    ops, opening = bound(harvested), harvest.opening()
    cases = expert_cases(harvest)
    for op, theirs, truth, given_, keep in (
        (ops.experts, plain_experts, reference.routed_experts, cases, KEEP),
        (
            shared(ops.shared_expert),
            shared(plain.shared_expert),
            reference.expert,
            shared_expert_cases(harvest),
            (),
        ),
    ):
        harvested.patch(
            op,
            theirs,
            truth,
            given_,
            dtype=torch.float32,
            keep=keep,
            must_differ=op is ops.experts,
            calls=lambda: ops.calls["patch.swiglu_clamp"],
        )
    harvested.report("share of activations that are clamped", max(map(clamped_frac, cases)))
    harvested.whole_model(opening, routed_experts=on_cpu(harvested, ops.experts))


def test_it_runs_only_where_it_is_on(examination: Examination) -> None:
    """Its counter moves with the patch on, and there is none with it off."""
    examination.ran(bound(examination), bound_without(examination), "experts")
