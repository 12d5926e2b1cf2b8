"""Routed experts with weights in nvfp4: blocks of 16, e4m3 scales and one factor a matrix.

Claim: on weights rounded to nvfp4 the product errs at most twice as much as plain torch in bf16;
  that rounding, compounded over 61 layers, stays within .05 nats of KL at the logits.
Why it breaks in practice: nibbles are read in the wrong order, a scale belongs to the wrong block
  or is applied twice, a row gets one scale where a block has its own.
A failure means: the packed weights are not read as they were written, or four bits are too few.
Cost: about 8 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case
from reference import experts as reference
from reference.formats import round_nvfp4
from suites.patches import expert_inputs
from suites.patches.binding import bound, bound_without, on_cpu
from suites.patches.checkpoint import Checkpoint
from suites.patches.examination import Examination
from suites.patches.expert_inputs import LIMIT, plain_experts
from suites.patches.harvest import Harvest
from suites.patches.harvested_inputs import expert_cases

BLOCK = 16
KEEP = ("weights", "gate_up", "down")


def nvfp4(weights: Tensor) -> Tensor:
    """Each expert's matrix by itself, to the format and back."""
    return torch.stack([round_nvfp4(matrix) for matrix in weights])


FORMATS = {"gate_up": nvfp4, "down": nvfp4}


def test_structured_inputs(examination: Examination) -> None:
    """Clamped and not; noise, outliers, sparse and equal rows, all sizes; NaN and Inf."""
    ops = bound(examination)
    examination.patch(
        ops.experts,
        plain_experts,
        reference.routed_experts,
        expert_inputs.cases(examination.generator(), 24, 5, 3 * BLOCK, 2 * BLOCK),
        dtype=torch.bfloat16,
        formats=FORMATS,
        keep=KEEP,
        row_inputs=("x", "ids", "weights"),
        special=("x",),
        calls=lambda: ops.calls["patch.nvfp4_experts"],
    )


@given(
    tokens=st.integers(1, 30),
    experts=st.integers(2, 5),
    inner=st.integers(1, 5),
    hidden=st.integers(1, 5),
    size=st.sampled_from([1e-4, 1.0, 1e4]),
)
def test_irregular_shapes(
    examination: Examination, tokens: int, experts: int, inner: int, hidden: int, size: float
) -> None:
    """Any number of tokens, experts and blocks; weights of any size."""
    generator = examination.generator()
    weights = expert_inputs.weights_of(generator, experts, inner * BLOCK, hidden * BLOCK)
    weights = {name: value * size for name, value in weights.items()}
    weights["gate_up"][0, 0, :BLOCK] = 0
    arguments = {
        "x": torch.randn(tokens, hidden * BLOCK, generator=generator),
        **expert_inputs.routing(generator, tokens, experts, 2),
        **weights,
        "limit": LIMIT,
    }
    examination.patch(
        bound(examination).experts,
        plain_experts,
        reference.routed_experts,
        Case(f"{tokens} tokens, {experts} experts {hidden}x{inner} blocks, x{size}", arguments),
        dtype=torch.bfloat16,
        formats=FORMATS,
        keep=KEEP,
    )


def test_weights_of_the_checkpoint(examination: Examination, checkpoint: Checkpoint) -> None:
    """Experts of the first, the middle and the last layer, on synthetic rows."""
    examination.patch(
        bound(examination).experts,
        plain_experts,
        reference.routed_experts,
        expert_inputs.checkpoint_cases(examination.generator(), checkpoint, 24),
        dtype=torch.bfloat16,
        formats=FORMATS,
        keep=KEEP,
        data=f"synthetic rows on weights of {checkpoint.folder.name}",
    )


def test_compounding(examination: Examination) -> None:
    """21, 43 and 61 layers of experts around a residual stream, down to logits."""
    stack = expert_inputs.stack(examination.generator())
    examination.compounding(bound(examination).experts, reference.routed_experts, stack)


def test_whole_model(examination: Examination) -> None:
    """All routed experts of a checkpoint in this format: KL at the logits."""
    examination.whole_model(routed_experts=on_cpu(examination, bound(examination).experts))


def test_harvested_rows(harvested: Examination, harvest: Harvest) -> None:
    """What the experts of a running engine saw, on their weights; its text at the logits."""
    ops, opening = bound(harvested), harvest.opening()
    harvested.patch(
        ops.experts,
        plain_experts,
        reference.routed_experts,
        expert_cases(harvest),
        dtype=torch.bfloat16,
        formats=FORMATS,
        keep=KEEP,
        calls=lambda: ops.calls["patch.nvfp4_experts"],
    )
    harvested.whole_model(opening, routed_experts=on_cpu(harvested, ops.experts))


def test_it_runs_only_where_it_is_on(examination: Examination) -> None:
    """Its counter moves with the patch on, and there is none with it off."""
    examination.ran(bound(examination), bound_without(examination), "experts")
