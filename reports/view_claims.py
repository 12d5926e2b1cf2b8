"""The table of all claims."""

from dataclasses import dataclass, replace

from fidelity.records import Finding
from fidelity.words import Ladder, Outcome
from reports.view_journal import Journal
from reports.view_outcome import OUTCOMES, Badge
from reports.view_parts import parts_of
from reports.view_text import TITLE_CHARS, anchor, cut, figure, plural
from reports.view_verdict import BLAMED

RUNGS = tuple(Ladder)
AS_ABOVE = "the same as the claim above"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A proportion with its bounds and its threshold, as places from 0 to 100."""

    low: float
    width: float
    at: float | None
    threshold: float | None
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One line of the claims table; every figure is text."""

    badge: Badge
    title: str
    also: str
    """What else the claim holds, where one test asserts several things at once."""
    claim: str
    counts: str
    effect: str
    bounds: str
    threshold: str
    gauge: Gauge | None
    ladder: str
    rung: int
    blame: str
    could_see: str
    paths: str
    href: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRows:
    """The claims of one suite."""

    suite: str
    rows: tuple[ClaimRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All claims of the run."""

    suites: tuple[SuiteRows, ...]
    summary: str
    unreached: tuple[str, ...]
    missing: str


def claims_of(journal: Journal) -> Claims:
    """Return the claims, by suite."""
    rows: dict[str, list[ClaimRow]] = {}
    last = ""
    for finding in journal.findings:
        lines = rows.setdefault(finding.suite, [])
        row = row_of(finding)
        said = finding.minimum_detectable_effect
        lines.append(replace(row, could_see=AS_ABOVE) if said and said == last else row)
        last = said
    return Claims(
        suites=tuple(
            SuiteRows(suite=suite, rows=tuple(members)) for suite, members in rows.items()
        ),
        summary=_summary(journal),
        unreached=journal.unreached,
        missing="" if rows else _why_missing(journal),
    )


def _summary(journal: Journal) -> str:
    passed = sum(finding.outcome is Outcome.PASS for finding in journal.findings)
    total = len(set(journal.planned) | {finding.claim for finding in journal.findings})
    return f"{passed} of {plural(total, 'claim')} passed"


def _why_missing(journal: Journal) -> str:
    if journal.planned:
        return f"The run ended before it decided any of {plural(len(journal.planned), 'claim')}."
    return "The run collected no claim."


def row_of(finding: Finding) -> ClaimRow:
    """Return one finding as a line of the table."""
    passed = finding.outcome is Outcome.PASS
    first, *also = parts_of(finding)
    could_see = "; ".join(dict.fromkeys(finding.minimum_detectable_effect.split("; ")))
    return ClaimRow(
        badge=OUTCOMES[finding.outcome],
        title=cut(first.title, TITLE_CHARS),
        also=cut("; ".join(part.title for part in also), 2 * TITLE_CHARS),
        claim=cut(finding.claim, TITLE_CHARS),
        counts=f"{finding.k}/{finding.n}" if _is_rate(finding) else "",
        effect=_effect(finding),
        bounds=_bounds(finding),
        threshold="" if finding.threshold is None else figure(finding.threshold),
        gauge=_gauge(finding),
        ladder=finding.ladder.value if finding.ladder else "",
        rung=RUNGS.index(finding.ladder) + 1 if finding.ladder else 0,
        blame=BLAMED[finding.blame] if finding.blame else "",
        could_see=cut(could_see, 800) or ("not stated" if passed else ""),
        paths=", ".join(finding.paths),
        href="" if passed else anchor("f", f"{finding.outcome} {finding.reason}"),
        note="provisional: Holm has not run" if finding.provisional else "",
    )


def _is_rate(finding: Finding) -> bool:
    """Return whether `k` of `n` were right; of a difference `k` counts pairs that were lost."""
    if finding.k is None or finding.n is None:
        return False
    values = (*(finding.interval or ()), finding.threshold or 0.0, finding.effect or 0.0)
    return "difference" not in finding.effect_name and all(0 <= value <= 1 for value in values)


def _effect(finding: Finding) -> str:
    if finding.effect is None:
        return ""
    return f"{finding.effect_name or 'effect'} {figure(finding.effect)}"


def _bounds(finding: Finding) -> str:
    if finding.interval is None:
        return ""
    return f"{figure(finding.interval[0])} to {figure(finding.interval[1])}"


def _gauge(finding: Finding) -> Gauge | None:
    """Return the drawing of a proportion; other measures have no common scale."""
    if finding.interval is None or not _is_rate(finding):
        return None
    low, high = finding.interval
    title = f"bounds {figure(low)} to {figure(high)}"
    if finding.threshold is not None:
        title += f", threshold {figure(finding.threshold)}"
    return Gauge(
        low=round(100 * low, 1),
        width=round(max(100 * (high - low), 1.0), 1),
        at=None if finding.effect is None else round(100 * finding.effect, 1),
        threshold=None if finding.threshold is None else round(100 * finding.threshold, 1),
        title=title,
    )
