"""What both four-bit formats of the experts are asked, and on which inputs."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Op
from reference.experts import routed_experts
from suites.patches import expert_inputs, flash_shapes
from suites.patches.binding import bound
from suites.patches.checkpoint import Checkpoint
from suites.patches.declared import declared
from suites.patches.examination import Examination
from suites.patches.expert_inputs import LIMIT, plain_experts
from suites.patches.harvest import Harvest
from suites.patches.harvested_inputs import expert_cases
from suites.patches.synthetic import bf16

SHAPES: dict[str, Any] = {
    "tokens": st.integers(1, 30),
    "experts": st.integers(2, 5),
    "inner": st.integers(1, 5),
    "hidden": st.integers(1, 5),
    "size": st.sampled_from([1e-4, 1.0, 1e4]),
}


KEEP = ("weights", "gate_up", "down")


class Fp4Experts(NamedTuple):
    """One format.

    Attributes:
        kind: its name.
        block: channels of one scale.
        rounding: a matrix to the format and back, by the reference.
    """

    kind: str
    block: int
    rounding: Op

    def structured(self, examination: Examination) -> None:
        """Clamped and not; noise, outliers, sparse and equal rows, all sizes; NaN and Inf."""
        generator = examination.generator()
        cases = expert_inputs.cases(generator, 24, 5, 3 * self.block, 2 * self.block)
        rows = ("x", "ids", "weights")
        self._examine(examination, cases, row_inputs=rows, special=("x",))

    def large(self, examination: Examination) -> None:
        """Sums over 4,096 and over 2,048 channels."""
        self._examine(examination, flash_shapes.expert_cases(examination.generator(), 5))

    def irregular(
        self,
        examination: Examination,
        *,
        tokens: int,
        experts: int,
        inner: int,
        hidden: int,
        size: float,
    ) -> None:
        """So many tokens, experts and blocks; weights of that size, a block of zeros."""
        generator, block = examination.generator(), self.block
        weights = expert_inputs.weights_of(generator, experts, inner * block, hidden * block)
        weights = {name: value * size for name, value in weights.items()}
        weights["gate_up"][0, 0, :block] = 0
        arguments = {
            "x": torch.randn(tokens, hidden * block, generator=generator),
            **expert_inputs.routing(generator, tokens, experts, 2),
            **weights,
            "limit": LIMIT,
        }
        name = f"{tokens} tokens, {experts} experts {hidden}x{inner} blocks, x{size}"
        self._examine(examination, Case(name, arguments))

    def weights_of(self, examination: Examination, checkpoint: Checkpoint) -> None:
        """Experts of the first, the middle and the last layer, on synthetic rows."""
        cases = expert_inputs.checkpoint_cases(examination.generator(), checkpoint, 24)
        data = f"synthetic rows on weights of {checkpoint.folder.name}"
        self._examine(examination, cases, data=data)

    def harvested(self, examination: Examination, harvest: Harvest) -> None:
        """What the experts of a running engine saw, on their weights."""
        self._examine(examination, expert_cases(harvest))

    def compounded(self, examination: Examination) -> None:
        """21, 43 and 61 layers of experts: near the format's maths, and no growth."""
        formats = {"x": bf16, **dict.fromkeys(("gate_up", "down"), self._declared())}
        examination.compounding(
            bound(examination).experts,
            routed_experts,
            expert_inputs.stack(examination.generator()),
            declared=declared(
                routed_experts, plain_experts, formats=formats, dtype=torch.bfloat16, keep=KEEP
            ),
        )

    def _examine(self, examination: Examination, cases: Case | Iterable[Case], **more: Any) -> None:
        ops = bound(examination)
        examination.patch(
            ops.experts,
            plain_experts,
            routed_experts,
            cases,
            dtype=torch.bfloat16,
            formats=dict.fromkeys(("gate_up", "down"), self._declared()),
            keep=KEEP,
            calls=lambda: ops.calls[f"patch.{self.kind}_experts"],
            **more,
        )

    def _declared(self) -> Op:
        def rounded(weights: Tensor) -> Tensor:
            return torch.stack([self.rounding(matrix) for matrix in weights])

        rounded.__name__ = self.kind
        return rounded
