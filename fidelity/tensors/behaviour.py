"""A candidate called again, and on rows alone: errors are judged, other bits are measured.

Determinism and independence of other rows are no duty of a kernel; a right result is, at each call.
"""

from collections.abc import Sequence

from torch import Tensor

from fidelity.microtests.results import Check
from fidelity.tensors.arguments import Case
from fidelity.tensors.bench import Bench
from fidelity.tensors.compare import same_bits
from fidelity.tensors.yardstick import Yardstick
from fidelity.words import Question


def behaviour_checks(
    bench: Bench, case: Case, yardstick: Yardstick, row_inputs: Sequence[str]
) -> list[Check]:
    """Two further calls, and rows alone, in the limits of the first call.

    Raises: ValueError: other outputs than before, or outputs without the rows of `row_inputs`.
    """
    first, again = (bench.run(bench.given(case.arguments)) for _ in range(2))
    checks: list[Check] = []
    for made in (first, again):
        _check_alike(made, yardstick.truth, "when it was called again")
        checks += yardstick.checks(made, ", called again")
    same = all(same_bits(a, b) for a, b in zip(first, again, strict=True))
    checks.append(_measured("runs that differ from the first", not same, case))
    if row_inputs:
        checks += _row_checks(bench, case, yardstick, row_inputs, first)
    return checks


def _row_checks(
    bench: Bench,
    case: Case,
    yardstick: Yardstick,
    row_inputs: Sequence[str],
    whole: list[Tensor],
) -> list[Check]:
    rows = case.arguments[row_inputs[0]].shape[0]
    for place, true in enumerate(yardstick.truth):
        if not true.dim() or true.shape[0] != rows:
            raise ValueError(
                f"row_inputs: output {place} has shape {list(true.shape)}; accepted: the {rows}"
                f" rows of {row_inputs[0]!r}"
            )
    joined = [made.clone() for made in whole]
    apart = 0
    for t in sorted({0, rows // 2, rows - 1}):
        given = bench.given(case.arguments)
        one = {name: v[t : t + 1] if name in row_inputs else v for name, v in given.items()}
        alone = bench.run(one)
        _check_alike(alone, [true[t : t + 1] for true in yardstick.truth], f"on row {t} alone")
        for all_, own in zip(joined, alone, strict=True):
            apart += not same_bits(all_[t : t + 1], own)
            all_[t : t + 1] = own.to(all_.dtype)
    measured = _measured("outputs that change when a row is alone", apart, case)
    return [*yardstick.checks(joined, ", rows alone"), measured]


def _check_alike(made: list[Tensor], truth: list[Tensor], when: str) -> None:
    shapes, wanted = ([list(part.shape) for part in parts] for parts in (made, truth))
    if shapes != wanted:
        raise ValueError(f"candidate: shapes {shapes} {when}; accepted: {wanted}, the truth's")


def _measured(name: str, value: int, case: Case) -> Check:
    return Check(question=Question.PROOF, name=name, value=float(value), where=case.name)
