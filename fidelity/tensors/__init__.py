"""Kernels against the truth: comparators, and `assert_patch` for anybody's own kernels.

The only part of the harness that imports torch.

    from fidelity.tensors import Case, assert_patch

    def test_my_norm():
        assert_patch(my_norm, torch_norm, fp32_norm, Case("random", {"x": torch.randn(64, 512)}),
                     name="my_norm", dtype=torch.bfloat16, device="cuda", row_inputs=("x",))
"""

from fidelity.tensors.arguments import Case
from fidelity.tensors.bench import Op
from fidelity.tensors.compare import Comparison, compare, same_bits
from fidelity.tensors.compounding import Stack, compounding_checks
from fidelity.tensors.patch import assert_patch, examine_patch, scope_of
from fidelity.tensors.poison import poisoned
from fidelity.tensors.selection import (
    SelectionComparison,
    Selects,
    compare_selection,
    selection_checks,
)

__all__ = [
    "Case",
    "Comparison",
    "Op",
    "SelectionComparison",
    "Selects",
    "Stack",
    "assert_patch",
    "compare",
    "compare_selection",
    "compounding_checks",
    "examine_patch",
    "poisoned",
    "same_bits",
    "scope_of",
    "selection_checks",
]
