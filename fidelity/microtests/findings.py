"""Verdicts on patches as records of a run: one finding a patch and source, one verdict over all.

Exonerated passes, convicted fails; inert is an error, since nothing of it was measured, and
undecided is inconclusive.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from fidelity.microtests.judge import CALLS
from fidelity.microtests.results import HARVESTED, Check, PatchReport
from fidelity.records import Finding, PatchState, Verdict
from fidelity.words import Blame, Outcome, PatchVerdict, Question, RunVerdict

SUITE = "patches"
OUTCOMES = {
    PatchVerdict.EXONERATED: Outcome.PASS,
    PatchVerdict.CONVICTED: Outcome.FAIL,
    PatchVerdict.INERT: Outcome.ERROR,
    PatchVerdict.UNDECIDED: Outcome.INCONCLUSIVE,
}
_TELLING = ("needles lost", "selections changed outside ties")
"""Shown first among checks that hold with nothing to spare, such as 0 of at most 0."""
_ORDER = (
    PatchVerdict.CONVICTED,
    PatchVerdict.INERT,
    PatchVerdict.UNDECIDED,
    PatchVerdict.EXONERATED,
)


def finding_of(report: PatchReport, *, earlier: str = "") -> Finding:
    """Return the record of one verdict.

    Args:
        report: the verdict, with all that was measured.
        earlier: what an earlier verdict said, and whether it still holds.
    """
    return Finding(
        claim=claim_of(report),
        suite=SUITE,
        title=f"{report.title} is right, and right to choose, on {report.source} inputs",
        outcome=OUTCOMES[report.verdict],
        reason=report.reason,
        ladder=report.ladder,
        blame=Blame.DEPLOYMENT if report.verdict is PatchVerdict.CONVICTED else None,
        profile={"microtest": msgspec.to_builtins(report), "earlier": earlier},
    )


def claim_of(report: PatchReport) -> str:
    """Return the id of what is claimed of a patch on these inputs."""
    return f"{SUITE}/{report.stem}"


def state_of(reports: Sequence[PatchReport]) -> PatchState:
    """Return the record of a patch, over its verdicts on all sources."""
    first = reports[0]
    calls = [check.value for report in reports for check in report.checks if check.name == CALLS]
    return PatchState(
        name=first.name,
        state="on",
        calls=int(max(calls)) if calls else None,
        detail="; ".join(f"{report.verdict} on {report.source} inputs" for report in reports),
    )


def verdict_of(
    reports: Sequence[PatchReport],
    *,
    trouble: str,
    interrupted: bool,
    duration_s: float,
    note: str = "",
) -> Verdict:
    """Return the last record of the run.

    Args:
        reports: every verdict.
        trouble: why the run itself is not whole, "" when it is.
        interrupted: whether a person stopped it.
        duration_s: of the run.
        note: what else a reader must know; it decides nothing.
    """
    outcomes = Counter(OUTCOMES[report.verdict] for report in reports)
    if outcomes[Outcome.FAIL]:
        verdict, code = RunVerdict.UNFAITHFUL, 1
    elif trouble or not reports or outcomes[Outcome.ERROR] or outcomes[Outcome.INCONCLUSIVE]:
        verdict, code = RunVerdict.UNDECIDED, 2
    else:
        verdict, code = RunVerdict.FAITHFUL, 0
    return Verdict(
        verdict=verdict,
        blame=Blame.DEPLOYMENT if code == 1 else None,
        sentence="; ".join(part for part in (counted(reports), trouble, note) if part),
        exit_code=130 if interrupted else code,
        counts={str(outcome): count for outcome, count in outcomes.items()},
        interrupted=interrupted,
        duration_s=duration_s,
    )


def counted(reports: Sequence[PatchReport]) -> str:
    """Return how many came out how, worst first, by source."""
    if not reports:
        return "no patch was examined"
    parts = []
    for verdict in _ORDER:
        found = [report for report in reports if report.verdict is verdict]
        for harvested in (False, True):
            names = [r.title for r in found if (r.source == HARVESTED) is harvested]
            if names:
                kind = "harvested" if harvested else "synthetic"
                listed = "" if verdict is PatchVerdict.EXONERATED else f" ({', '.join(names)})"
                parts.append(f"{len(names)} {verdict} on {kind} inputs{listed}")
    return ", ".join(parts)


def only_synthetic(reports: Sequence[PatchReport]) -> str:
    """Return which patches were not examined on harvested inputs; "" when all were."""
    harvested = {report.name for report in reports if report.source == HARVESTED}
    names = sorted({report.name for report in reports} - harvested)
    if not names:
        return ""
    return f"synthetic inputs only, since a dump does not hold theirs: {', '.join(names)}"


def line_of(report: PatchReport) -> str:
    """Return one verdict as a line: verdict, patch, rung, the two numbers, the reason."""
    rung = str(report.ladder) if report.ladder else "-"
    numbers = "; ".join(
        text
        for question in (Question.IMPLEMENTATION, Question.FORMAT)
        if (text := number_of(report, question))
    )
    head = f"{report.verdict:<11} {report.title} on {report.source} inputs"
    return f"{head} ({rung}): {numbers + '. ' if numbers else ''}{report.reason}"


def number_of(report: PatchReport, question: Question) -> str:
    """Return the figure nearest to its limit of one question, in words; "" where none decided."""
    check = deciding(report.checks, question)
    if check is None:
        return ""
    limit = "" if check.limit is None else f" (limit {_figure(check.limit)})"
    return f"{question}: {check.name} {_figure(check.value)}{limit}"


def deciding(checks: Sequence[Check], question: Question) -> Check | None:
    """Return the broken check of a question, else the one nearest to its limit."""
    decided = [c for c in checks if c.question is question and c.holds is not None]

    def badness(check: Check) -> tuple[bool, bool, float, bool]:
        share = check.value / check.limit if check.limit else check.value
        return check.holds is False, bool(check.limit), share, check.name in _TELLING

    return max(decided, key=badness, default=None)


def _figure(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.2g}"
