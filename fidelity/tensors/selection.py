"""Selected sets (index top-k, experts) against the best ones by true scores.

Ties are excused and counted: where the last chosen and the best left-out score are equal, or
closer than the band, another order is no fault.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fidelity.microtests.results import Check
from fidelity.statistics.ladder import Difference, rung
from fidelity.words import Question


class SelectionComparison(NamedTuple):
    """How far selected sets [T, K] are from the best ones."""

    rows: int
    jaccard_mean: float
    jaccard_min: float
    tied_rows: int
    changed_rows: int
    """Rows that chose, or left out, an entry further than the band from the border."""
    malformed_rows: int
    """Rows with too few entries, one twice, or one that is not visible."""
    first_changed: int
    needles: int
    needles_kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selects:
    """How the selected sets of an op are judged.

    Attributes:
        scores: called with the op's arguments, returns true scores [T, S].
        output: place of the indices among the op's outputs.
        visible: called likewise, int [T]: entries 0 .. n - 1 may be chosen; None: all.
        band: scores this close to the border are ties, as a share of the row's largest score.
        needles: called likewise, int [T]: an entry that must be chosen, -1 for none.
    """

    scores: Callable[..., Tensor]
    output: int = 0
    visible: Callable[..., Tensor] | None = None
    band: float = 2.0**-20
    needles: Callable[..., Tensor] | None = None


def compare_selection(
    chosen: Tensor,
    scores: Tensor,
    *,
    visible: Tensor | None = None,
    band: float = 2.0**-20,
    needles: Tensor | None = None,
) -> SelectionComparison:
    """Hold selected sets against the best ones by true scores.

    Args:
        chosen: int [T, K], -1 for none; the order does not matter.
        scores: [T, S].
        visible: int [T]; None: all.
        band: see `Selects`.
        needles: int [T]; None: none.
    """
    rows = chosen.shape[0]
    chosen, scores = chosen.detach().long().cpu(), scores.detach().double().cpu()
    jaccards: list[float] = []
    changed: list[int] = []
    tied = malformed = asked = kept = 0
    for t in range(rows):
        count = scores.shape[1] if visible is None else int(visible[t])
        picks = chosen[t][chosen[t] >= 0]
        row = scores[t, :count].nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
        k = min(chosen.shape[1], count)
        if len(picks) != k or len(set(picks.tolist())) != k or (k and int(picks.max()) >= count):
            malformed += 1
            jaccards.append(0.0)
        else:
            is_tied, is_changed, jaccard = _row(row, picks, k, band)
            tied += is_tied
            changed += [t] if is_changed else []
            jaccards.append(jaccard)
        if needles is not None and int(needles[t]) >= 0:
            asked += 1
            kept += int(needles[t]) in picks
    return SelectionComparison(
        rows=rows,
        jaccard_mean=sum(jaccards) / max(1, rows),
        jaccard_min=min(jaccards, default=1.0),
        tied_rows=tied,
        changed_rows=len(changed),
        malformed_rows=malformed,
        first_changed=changed[0] if changed else -1,
        needles=asked,
        needles_kept=kept,
    )


def _row(row: Tensor, picks: Tensor, k: int, band: float) -> tuple[bool, bool, float]:
    """(tied, changed, Jaccard) of one row's scores and legal picks."""
    if k in (0, len(row)):
        return False, False, 1.0
    order = row.sort(descending=True, stable=True).indices
    last, next_ = float(row[order[k - 1]]), float(row[order[k]])
    finite = row[row.isfinite()].abs()
    width = band * float(finite.max()) if finite.numel() else 0.0
    tied = last == next_ or last - next_ <= width
    best = torch.zeros(len(row), dtype=torch.bool)
    got = best.clone()
    best[order[:k]], got[picks] = True, True
    gained, missed = row[got & ~best], row[best & ~got]
    # Equal scores are compared as such, so that two -inf are a tie too.
    wrong = bool(((gained < last) & ~(last - gained <= width)).any())
    wrong |= bool(((missed > last) & ~(missed - last <= width)).any())
    return tied, wrong, float((best & got).sum() / (best | got).sum())


def selection_checks(
    found: SelectionComparison, *, question: Question, where: str
) -> tuple[Check, ...]:
    """What is asked of selected sets: legal, the best outside ties, no needle lost.

    As a question of format only the needles decide: rounding changes what lies near the border.
    """
    implementation = question is Question.IMPLEMENTATION
    changed, lost = found.changed_rows, found.needles - found.needles_kept
    checks = [
        Check(
            question=question,
            name="malformed selections",
            value=found.malformed_rows,
            limit=0,
            holds=found.malformed_rows == 0,
            rung=rung(Difference(lost=True)) if found.malformed_rows else None,
            where=where,
            sentence=f"{found.malformed_rows} of {found.rows} rows choose too few entries, one"
            f" twice, or one that is not there ({where})",
        ),
        Check(
            question=question,
            name="selections changed outside ties",
            value=changed,
            limit=0 if implementation else None,
            holds=changed == 0 if implementation else None,
            rung=rung(Difference(selection_changed=True)) if changed and implementation else None,
            where=f"{where}, row {found.first_changed}" if changed else where,
            sentence=f"{changed} of {found.rows} rows choose other entries than the best, beyond"
            f" ties (worst Jaccard {found.jaccard_min:.3f}; {where})",
        ),
        Check(question=question, name="Jaccard, mean", value=found.jaccard_mean, where=where),
        Check(question=question, name="Jaccard, least", value=found.jaccard_min, where=where),
        Check(question=question, name="rows with a tie", value=found.tied_rows, where=where),
    ]
    if found.needles:
        checks.append(
            Check(
                question=question,
                name="needles lost",
                value=lost,
                limit=0,
                holds=lost == 0,
                rung=rung(Difference(selection_changed=True)) if lost else None,
                where=where,
                sentence=f"{lost} of {found.needles} needles are no longer selected ({where})",
            )
        )
    return tuple(checks)


def selects_of(selects: Selects, arguments: dict[str, Any], chosen: Tensor) -> SelectionComparison:
    """Compare an op's selection by what `selects` says of its arguments."""

    def ask(what: Callable[..., Tensor] | None) -> Tensor | None:
        return None if what is None else what(**arguments)

    return compare_selection(
        chosen,
        selects.scores(**arguments),
        visible=ask(selects.visible),
        band=selects.band,
        needles=ask(selects.needles),
    )
