"""The table of all claims."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fidelity.records import Finding, Part
from fidelity.words import Ladder, Outcome
from reports.view_journal import Journal
from reports.view_outcome import OUTCOMES, Badge
from reports.view_text import TITLE_CHARS, anchor, cut, figure, plural
from reports.view_verdict import BLAMED

RUNGS = tuple(Ladder)
MOST_PARTS = 80
AS_ABOVE = "the same as the claim above"
FEWEST_ALIKE = 3
"""Fewer claims with the same figures stand as rows of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A proportion with its bounds and its threshold, as places from 0 to 100."""

    low: float
    width: float
    at: float | None
    threshold: float | None
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one decision, as text."""

    badge: Badge
    title: str
    counts: str
    effect: str
    bounds: str
    threshold: str
    gauge: Gauge | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One line of the claims table, and a line below it for each part of the claim."""

    badge: Badge
    title: str
    claim: str
    figures: Figures
    """Of the claim; where it has parts, of the worst of them."""
    parts: tuple[Figures, ...]
    """Of a claim that is decided in several parts, each with its own bounds."""
    ladder: str
    rung: int
    blame: str
    could_see: str
    paths: str
    href: str
    note: str
    alike: tuple[str, ...] = ()
    """Titles of the claims that follow and passed with the very same figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRows:
    """The claims of one suite."""

    suite: str
    rows: tuple[ClaimRow, ...]

    @property
    def folded(self) -> tuple[ClaimRow, ...]:
        """The rows; passes that repeat the figures of the row above are titles below it."""
        return tuple(_folded(self.rows))


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


def _folded(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    folded: list[ClaimRow] = []
    at = 0
    while at < len(rows):
        end = at + 1
        while end < len(rows) and _repeats(rows[at], rows[end]):
            end += 1
        if end - at > FEWEST_ALIKE:
            titles = tuple(row.title for row in rows[at + 1 : end])
            folded.append(replace(rows[at], alike=titles))
        else:
            folded += rows[at:end]
        at = end
    return folded


def _repeats(first: ClaimRow, row: ClaimRow) -> bool:
    plain = not (row.href or row.parts or row.note or first.href or first.parts or first.note)
    alone = replace(row.figures, title=first.figures.title)
    return (
        plain
        and row.badge == first.badge == OUTCOMES[Outcome.PASS]
        and row.could_see in (AS_ABOVE, first.could_see)
        and alone == first.figures
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
    return ClaimRow(
        badge=OUTCOMES[finding.outcome],
        title=cut(finding.title or finding.claim, TITLE_CHARS),
        claim=cut(finding.claim, TITLE_CHARS),
        figures=_figures(finding),
        parts=tuple(_figures(part) for part in finding.parts[:MOST_PARTS]),
        ladder=finding.ladder.value if finding.ladder else "",
        rung=RUNGS.index(finding.ladder) + 1 if finding.ladder else 0,
        blame=BLAMED[finding.blame] if finding.blame else "",
        could_see=cut(finding.minimum_detectable_effect, 800) or ("not stated" if passed else ""),
        paths=", ".join(finding.paths),
        href="" if passed else anchor("f", f"{finding.outcome} {finding.reason}"),
        note="provisional: Holm has not run" if finding.provisional else "",
    )


def _figures(decided: Finding | Part) -> Figures:
    return Figures(
        badge=OUTCOMES[decided.outcome],
        title=cut(decided.title, TITLE_CHARS),
        counts=f"{decided.k}/{decided.n}" if _is_rate(decided) else "",
        effect=_effect(decided),
        bounds=_bounds(decided),
        threshold="" if decided.threshold is None else figure(decided.threshold),
        gauge=_gauge(decided),
    )


def _is_rate(decided: Finding | Part) -> bool:
    """Return whether `k` of `n` were right; of a difference `k` counts pairs that were lost."""
    if decided.k is None or decided.n is None:
        return False
    values = (*(decided.interval or ()), decided.threshold or 0.0, decided.effect or 0.0)
    return "difference" not in decided.effect_name and all(0 <= value <= 1 for value in values)


def _effect(decided: Finding | Part) -> str:
    if decided.effect is None:
        return ""
    return f"{decided.effect_name or 'effect'} {figure(decided.effect)}"


def _bounds(decided: Finding | Part) -> str:
    if decided.interval is None:
        return ""
    return f"{figure(decided.interval[0])} to {figure(decided.interval[1])}"


def _gauge(decided: Finding | Part) -> Gauge | None:
    """Return the drawing of a proportion; other measures have no common scale."""
    if decided.interval is None or not _is_rate(decided):
        return None
    low, high = decided.interval
    title = f"bounds {figure(low)} to {figure(high)}"
    if decided.threshold is not None:
        title += f", threshold {figure(decided.threshold)}"
    return Gauge(
        low=round(100 * low, 1),
        width=round(max(100 * (high - low), 1.0), 1),
        at=None if decided.effect is None else round(100 * decided.effect, 1),
        threshold=None if decided.threshold is None else round(100 * decided.threshold, 1),
        title=title,
    )
