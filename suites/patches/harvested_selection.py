"""What a bound indexer selects on harvested inputs, held against true scores."""

from collections.abc import Iterable

import torch
from torch import Tensor

from fidelity.microtests.results import Check
from fidelity.tensors import Op, SelectionComparison, compare_selection, selection_checks
from fidelity.words import Question
from kernels import Ops, Settings
from suites.patches.binding import SETTINGS, on_cpu
from suites.patches.examination import Examination
from suites.patches.harvest import Harvest, Indexed
from suites.patches.index_inputs import selecting, visible

SUM_ERROR = 2.0**-21
"""Of the largest value of a row: eight roundings of a sum over 64 to 128 channels in fp32."""
DRAWS = 8
FAR = 2.0**-12
"""Less than any step of the grids, more than such errors."""


def settings_of(harvest: Harvest) -> Settings:
    """What binding must know of the harvested model."""
    c = harvest.checkpoint.config
    return Settings(
        index_topk=c.index_topk,
        index_head_dim=c.index_head_dim,
        head_dim=c.head_dim,
        rope_dim=c.qk_rope_head_dim,
        implementation=SETTINGS.implementation,
    )


def away_from_ties(keys: Tensor, rounded: Op) -> Tensor:
    """Rows of keys [E, Di] that round alike when they move by the error of a sum in fp32.

    A rotation before the rounding sums over all channels: on a tie of the grid the order of that
    sum decides, and two right implementations part by a whole step.
    """
    generator = torch.Generator().manual_seed(0)
    largest = keys.abs().amax(1, keepdim=True)
    plain = rounded(keys)
    same = torch.ones(len(keys), dtype=torch.bool)
    for _ in range(DRAWS):
        noise = torch.rand(keys.shape, generator=generator) * 2 - 1
        moved = rounded(keys + noise * largest * SUM_ERROR)
        same &= ((moved - plain).abs() <= largest * FAR).all(1)
    return keys[same]


def needle_checks(
    examination: Examination, ops: Ops, inputs: Iterable[Indexed], *, label: str
) -> list[Check]:
    """Whether needles that stand out in the true scores are still selected; keeps the curve.

    No check where no needle stands out: the question of format then stays open.
    """
    op = on_cpu(examination, selecting(ops))
    by_bin: dict[int, list[SelectionComparison]] = {}
    checks: list[Check] = []
    for one in inputs:
        arguments = {**one.arguments, "topk": ops.index_topk}
        made, seen = op(**arguments), visible(**arguments)
        where = f"{label}, {one.where}"
        whole = compare_selection(made, one.scores, visible=seen, needles=one.needles)
        checks += selection_checks(whole, question=Question.FORMAT, where=where)
        for tokens, rows in _bins(one.arguments["positions"]).items():
            found = compare_selection(
                made[rows], one.scores[rows], visible=seen[rows], needles=one.needles[rows]
            )
            by_bin.setdefault(tokens, []).append(found)
    lengths = sorted(by_bin)
    examination.curve(label, lengths, [_together(by_bin[tokens]) for tokens in lengths])
    if not any(check.name == "needles lost" for check in checks):
        return [check for check in checks if check.holds is not True]
    return checks


def _bins(positions: Tensor) -> dict[int, Tensor]:
    """Rows by the power of two that their context does not exceed."""
    sizes = [1 << int(position).bit_length() for position in positions]
    return {
        size: torch.tensor([row for row, own in enumerate(sizes) if own == size])
        for size in dict.fromkeys(sizes)
    }


def _together(parts: list[SelectionComparison]) -> SelectionComparison:
    """One comparison over all rows."""
    rows = sum(part.rows for part in parts)
    return parts[0]._replace(
        rows=rows,
        jaccard_mean=sum(part.jaccard_mean * part.rows for part in parts) / rows,
        jaccard_min=min(part.jaccard_min for part in parts),
        tied_rows=sum(part.tied_rows for part in parts),
        changed_rows=sum(part.changed_rows for part in parts),
        malformed_rows=sum(part.malformed_rows for part in parts),
        needles=sum(part.needles for part in parts),
        needles_kept=sum(part.needles_kept for part in parts),
    )
