"""From checks to the verdict on a patch: inert, convicted, undecided or exonerated.

A patch that never ran is inert, whatever its numbers. One check that does not hold convicts. An
alias of the baseline, or a question that was not asked, leaves it undecided. Only then is it
exonerated, within its scope.
"""

from collections.abc import Sequence

import msgspec

from fidelity.microtests.results import Check, PatchReport, Scope
from fidelity.statistics.ladder import worst
from fidelity.words import Ladder, PatchVerdict, Question

CALLS = "calls"
DIFFERS = "bits that differ from the baseline"
_ORDER = tuple(Ladder)
_BEST_IS_HIGH = ("Jaccard, mean", "Jaccard, least")


def judge(
    name: str, scope: Scope, checks: Sequence[Check], *, needs: Sequence[Question], at: str = ""
) -> PatchReport:
    """Return the verdict over all checks.

    Args:
        name: of the patch.
        scope: what was measured on what.
        checks: of all its tests.
        needs: questions without which nothing is exonerated; a question counts as asked when at
            least one of its checks was decided.
        at: time of the verdict.
    """
    verdict, reason = _decide(checks, needs)
    rungs = [check.rung for check in checks if check.rung is not None]
    return PatchReport(
        name=name,
        verdict=verdict,
        ladder=None if verdict is PatchVerdict.INERT else worst(rungs),
        reason=reason if verdict is not PatchVerdict.EXONERATED else _exonerated(checks, scope),
        scope=scope,
        checks=fold(checks),
        at=at,
    )


def fold(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Of each figure the worst, with the number of times that it was measured."""
    groups: dict[tuple[Question, str], list[Check]] = {}
    for check in checks:
        groups.setdefault((check.question, check.name), []).append(check)
    folded = []
    for group in groups.values():
        shown = max(group, key=_badness)
        sentence = shown.sentence if shown.holds is False else ""
        cases = sum(check.cases for check in group)
        folded.append(msgspec.structs.replace(shown, cases=cases, sentence=sentence))
    return tuple(folded)


def _badness(check: Check) -> tuple[bool, float]:
    """Broken first, then nearest to the limit; without a limit the largest value."""
    share = check.value / check.limit if check.limit else check.value
    if check.limit is None and check.name in _BEST_IS_HIGH:
        share = -check.value
    return check.holds is False, share


def _decide(checks: Sequence[Check], needs: Sequence[Question]) -> tuple[PatchVerdict, str]:
    broken = [check for check in checks if check.holds is False]
    proofs = {check.name: check for check in broken if check.question is Question.PROOF}
    if CALLS in proofs:
        return PatchVerdict.INERT, proofs[CALLS].sentence
    guilty = [check for check in broken if check.question is not Question.PROOF]
    if guilty:
        return PatchVerdict.CONVICTED, max(guilty, key=_weight).sentence
    if proofs:
        return PatchVerdict.UNDECIDED, next(iter(proofs.values())).sentence
    asked = {check.question for check in checks if check.holds is not None}
    missing = [str(question) for question in needs if question not in asked]
    if missing:
        return PatchVerdict.UNDECIDED, f"not measured: {', '.join(missing)}"
    return PatchVerdict.EXONERATED, ""


def _weight(check: Check) -> tuple[int, float]:
    """Worst rung first, then the largest excess over the limit."""
    rung = -1 if check.rung is None else _ORDER.index(check.rung)
    excess = check.value / check.limit if check.limit else check.value
    return rung, excess


def _exonerated(checks: Sequence[Check], scope: Scope) -> str:
    decided = sum(check.holds is True for check in checks)
    return f"all {decided} checks hold in {scope.dtype}, {scope.data} data, {scope.device}"
