"""The checks of an implementation: errors against plain torch, and what proves that they count."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fidelity.microtests.judge import CALLS, DIFFERS
from fidelity.microtests.results import Check
from fidelity.statistics.ladder import Difference, rung
from fidelity.tensors.compare import SMALL_ROW, Comparison, compare, same_bits
from fidelity.words import Question

BASELINE_FACTOR = 2.0
"""Largest error of a candidate, as a multiple of plain torch's in the same format."""
TINY = 2.0**-20
"""Of the largest truth: the order of a sum alone moves fp32 results this far. Narrower outputs
get one rounding to their own dtype instead."""

CONTROL = 0.125
"""Size of the damage that every comparison must see: the largest value, an eighth larger."""


def untouched_check(after: Mapping[str, Any], before: Mapping[str, Any], where: str) -> Check:
    """Whether the candidate left its arguments as they were."""
    changed = [
        name
        for name, value in before.items()
        if isinstance(value, Tensor) and not same_bits(value, after[name])
    ]
    return Check(
        question=Question.IMPLEMENTATION,
        name="arguments changed in place",
        value=len(changed),
        limit=0,
        holds=not changed,
        rung=rung(Difference(lost=True)) if changed else None,
        where=where,
        sentence=f"it wrote into its own arguments {', '.join(changed)} ({where})",
    )


def error_checks(
    mine: Comparison, plain: Comparison, *, tiny: float, where: str
) -> tuple[Check, ...]:
    """Masks, error over everything, worst row; against plain torch in the same format."""
    question = Question.IMPLEMENTATION
    masks = Check(
        question=question,
        name="NaN and Inf in other places",
        value=mine.mask_differences,
        limit=0,
        holds=mine.mask_differences == 0,
        rung=rung(Difference(lost=True)) if mine.mask_differences else None,
        where=where,
        sentence=f"{mine.mask_differences} values are NaN or infinite where maths is not, or the"
        f" other way round ({where})",
    )
    limit = BASELINE_FACTOR * plain.max_abs + tiny * mine.scale
    row_limit = BASELINE_FACTOR * plain.worst_row + max(tiny, TINY / SMALL_ROW)
    spot = f"{where}, row {mine.worst_at}"
    largest = Check(
        question=question,
        name="largest error",
        value=mine.max_abs,
        limit=limit,
        holds=mine.max_abs <= limit,
        rung=rung(Difference(equal=mine.max_abs == 0, size=mine.max_abs, null_floor=limit)),
        where=where,
        sentence=f"largest error {mine.max_abs:.3g} is above {limit:.3g}, twice that of plain"
        f" torch in the same format ({where})",
    )
    row = Check(
        question=question,
        name="error of the worst row",
        value=mine.worst_row,
        limit=row_limit,
        holds=mine.worst_row <= row_limit,
        rung=rung(Difference(equal=mine.worst_row == 0, size=mine.worst_row, null_floor=row_limit)),
        where=spot,
        sentence=f"the worst row is off by {mine.worst_row:.3g} of its size, above"
        f" {row_limit:.3g}, twice that of plain torch ({spot})",
    )
    reported = (
        ("relative error", mine.relative),
        ("cosine difference", mine.cosine_difference),
        ("error of the worst head", mine.worst_head),
    )
    return (
        masks,
        largest,
        row,
        *(Check(question=question, name=n, value=v, where=where) for n, v in reported),
    )


def special_check(made: Sequence[Tensor], truth: Sequence[Tensor], where: str) -> Check:
    """Whether NaN, Inf and -Inf come out where maths puts them, each as itself."""
    pairs = list(zip(made, truth, strict=True))
    floats = [compare(mine, true) for mine, true in pairs if mine.dtype.is_floating_point]
    wrong = sum(found.mask_differences for found in floats)
    return Check(
        question=Question.IMPLEMENTATION,
        name="NaN and Inf that do not come out where they should",
        value=wrong,
        limit=0,
        holds=wrong == 0,
        rung=rung(Difference(lost=True)) if wrong else None,
        where=where,
        sentence=f"{wrong} values are finite where maths is not, the other way round, or NaN, Inf"
        f" and -Inf in each other's place ({where})",
    )


def control_checks(
    mine: Tensor, true: Tensor, plain: Comparison, tiny: float, where: str
) -> list[Check]:
    """Damage the candidate's middle row ourselves: a check that does not see it proves nothing."""
    if not mine.numel() or not bool(true.any()) or not mine.dtype.is_floating_point:
        return []
    # in float64: float8 has no product
    damaged = mine.detach().to("cpu", torch.float64, copy=True).contiguous()
    flat = damaged.view(damaged.shape[0], -1) if damaged.dim() > 1 else damaged.view(-1, 1)
    sizes = true.detach().cpu().double().reshape(flat.shape).abs().nan_to_num(posinf=0.0)
    row, column = divmod(int(sizes.argmax()), flat.shape[1])
    flat[row, column] *= 1 + CONTROL
    found = error_checks(compare(damaged, true), plain, tiny=tiny, where="")
    seen = any(check.holds is False for check in found)
    return [
        Check(
            question=Question.PROOF,
            name="planted damage that was not seen",
            value=float(not seen),
            limit=0,
            holds=seen,
            where=where,
            sentence=f"a value made {CONTROL:.0%} larger on purpose was not seen ({where}): the"
            " limits are too wide to exonerate anything",
        )
    ]


def called(count: int) -> Check:
    """Whether the patch ran: without that, nothing was measured of it."""
    return Check(
        question=Question.PROOF,
        name=CALLS,
        value=count,
        holds=count > 0,
        sentence="its call counter did not move: the patch never ran",
    )


def differs_check(*, differs: bool, cases: int) -> Check:
    """Whether some bit differs from the baseline's: an alias exonerates nothing."""
    return Check(
        question=Question.PROOF,
        name=DIFFERS,
        value=float(differs),
        holds=differs,
        sentence=f"its results equal the baseline's to the bit on all {cases} inputs: an alias of"
        " the baseline exonerates nothing",
    )
