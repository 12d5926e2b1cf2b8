"""What results of one case are held against: the truth, and a baseline that deserves its name.

Twice the error of a wrong baseline exonerates anything. So the baseline is held too: it may err as
far as the maths moves when each floating input moves by so many roundings of the run's dtype, and
by as many roundings of its result.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fidelity.microtests.results import Check
from fidelity.tensors.arguments import is_float, outputs_of, short
from fidelity.tensors.checks import TINY, error_checks
from fidelity.tensors.compare import SMALL_ROW, Comparison, compare
from fidelity.tensors.selection import Selects, selection_checks, selects_of
from fidelity.words import Question

ROUNDINGS = 8
"""Over all cases of our microtests plain torch errs as 3.3 do in float32 and 1.2 in bfloat16."""
MOST_DRAWS = 4
MANY_VALUES = 1024
"""Of so many results one draw finds how far they move."""


class Yardstick(NamedTuple):
    """One case's truth.

    Attributes:
        case: name of the case.
        wide: arguments of the reference.
        truth: its outputs.
        plain: how far the baseline's are from them; None where a selection is judged instead.
        selects: how that is judged.
    """

    case: str
    wide: Mapping[str, Any]
    truth: list[Tensor]
    plain: list[Comparison | None]
    selects: Selects | None

    def where(self, place: int, how: str = "") -> str:
        """Case, output, and how it was called."""
        output = f", output {place}" if len(self.truth) > 1 else ""
        return f"{self.case}{output}{how}"

    def checks(self, made: list[Tensor], how: str = "") -> list[Check]:
        """Hold results against the truth, in the limits of this case."""
        checks: list[Check] = []
        for place, (mine, true, plain) in enumerate(zip(made, self.truth, self.plain, strict=True)):
            where = self.where(place, how)
            if plain is not None:
                checks += error_checks(compare(mine, true), plain, tiny=tiny_of(mine), where=where)
            elif self.selects is not None:
                found = selects_of(self.selects, dict(self.wide), mine)
                checks += selection_checks(found, question=Question.IMPLEMENTATION, where=where)
        return checks


def tiny_of(made: Tensor) -> float:
    """What an output's own dtype rounds, as a share of the largest truth."""
    return max(TINY, torch.finfo(made.dtype).eps / 2) if is_float(made) else TINY


def baseline_checks(
    yardstick: Yardstick, reference: Any, made: list[Tensor], dtype: torch.dtype
) -> list[Check]:
    """Whether the baseline errs no more than plain arithmetic in `dtype` can.

    Args:
        yardstick: of the case.
        reference: the maths.
        made: the baseline's outputs.
        dtype: of the run.
    """
    checks: list[Check] = []
    moved: list[list[Tensor]] = []
    for place, (theirs, plain) in enumerate(zip(made, yardstick.plain, strict=True)):
        if plain is None:
            continue
        where, true = yardstick.where(place), yardstick.truth[place]
        checks.append(_masks(plain, where))
        share = ROUNDINGS * _unit(dtype, theirs)
        least = ROUNDINGS * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        limit, row_limit = share * plain.scale + least, share
        if plain.scale:
            row_limit += least / (plain.scale * SMALL_ROW)
        if plain.max_abs > limit or plain.worst_row > row_limit:
            if not moved:
                draws = max(1, min(MOST_DRAWS, MANY_VALUES // max(1, true.numel())))
                moved = [list(one) for one in _moved(yardstick.wide, reference, dtype, draws)]
            found = [compare(one[place], true) for one in moved]
            limit += max(one.max_abs for one in found)
            row_limit += max(one.worst_row for one in found)
        excess = max(plain.max_abs / limit, plain.worst_row / row_limit)
        checks.append(
            Check(
                question=Question.PROOF,
                name="error of the baseline, of what plain arithmetic can err",
                value=excess,
                limit=1,
                holds=excess <= 1,
                where=where,
                sentence=f"the baseline is off by {plain.max_abs:.3g}, its worst row by"
                f" {plain.worst_row:.3g} of its size; plain arithmetic in"
                f" {short(dtype)} by {limit:.3g} and {row_limit:.3g} at most"
                f" ({where}): twice the error of a wrong baseline exonerates nothing",
            )
        )
    return checks


def _masks(plain: Comparison, where: str) -> Check:
    wrong = plain.mask_differences
    return Check(
        question=Question.PROOF,
        name="NaN and Inf of the baseline in other places",
        value=wrong,
        limit=0,
        holds=wrong == 0,
        where=where,
        sentence=f"{wrong} values of the baseline are NaN or infinite where maths is not, or the"
        f" other way round ({where}): nothing can be held against it there",
    )


def _unit(dtype: torch.dtype, made: Tensor) -> float:
    """One rounding: of the run, or of an output that is coarser."""
    own = torch.finfo(made.dtype).eps if is_float(made) else 0.0
    return max(torch.finfo(dtype).eps, own) / 2


def _moved(
    wide: Mapping[str, Any], reference: Any, dtype: torch.dtype, draws: int
) -> Iterator[list[Tensor]]:
    """Truths of inputs that were moved up or down by ROUNDINGS, at random."""
    by = ROUNDINGS * torch.finfo(dtype).eps / 2
    for seed in range(draws):
        generator = torch.Generator().manual_seed(seed)

        def shifted(value: Any, generator: torch.Generator = generator) -> Any:
            if not is_float(value):
                return value
            up = torch.randint(2, value.shape, generator=generator, dtype=torch.int8)
            return value * (1 + by * (2.0 * up.to(value.device) - 1))

        arguments = {name: shifted(value) for name, value in wide.items()}
        yield outputs_of(reference(**arguments), "reference")
