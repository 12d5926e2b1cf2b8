"""Microtests of patches: a ladder over all, a card each, and what is selected over the length."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from fidelity.microtests.findings import SUITE, counted, number_of
from fidelity.microtests.results import Curve, PatchReport, Scope
from fidelity.records import Finding
from fidelity.words import Ladder, PatchVerdict, Question
from reports.view_journal import Journal
from reports.view_outcome import Badge
from reports.view_subject import Fact, Subject
from reports.view_text import anchor, duration, figure, one_line, plural, when
from reports.view_verdict import Hero, OutcomeCount, Step

BADGES = {
    PatchVerdict.CONVICTED: Badge(
        tone="fail", word="convicted", symbol="✗", meaning="a check does not hold"
    ),
    PatchVerdict.INERT: Badge(
        tone="error", word="inert", symbol="!", meaning="installed, never ran"
    ),
    PatchVerdict.UNDECIDED: Badge(
        tone="inconclusive",
        word="undecided",
        symbol="?",
        meaning="a question was not asked, or its test broke",
    ),
    PatchVerdict.EXONERATED: Badge(
        tone="pass", word="exonerated", symbol="✓", meaning="every check holds, in its scope"
    ),
}
RUNGS = tuple(Ladder)
_ROW, _TOP, _LABEL, _STEP = 22, 22, 250, 110
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 320, 120, 30, 20
MOST_PANELS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One patch on the ladder chart; `x` is None for a patch that never ran."""

    name: str
    title: str
    y: float
    x: float | None
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderChart:
    """All verdicts over the rungs."""

    columns: tuple[tuple[float, str], ...]
    rows: tuple[Rung, ...]
    label_x: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One length of a selection chart."""

    x: float
    kept_y: float
    jaccard_y: float
    held: bool
    label: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionChart:
    """Needles kept and Jaccard over the context's length, of one value on one source."""

    name: str
    note: str
    spots: tuple[Spot, ...]
    kept: str
    """Points of the line of needles; "" where no needle was asked for."""
    jaccard: str
    gridlines: tuple[tuple[float, str], ...]
    left: int = _LEFT
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One measured figure."""

    question: str
    name: str
    value: str
    limit: str
    where: str
    tone: str
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCard:
    """One verdict with all that is behind it."""

    anchor: str
    title: str
    source: str
    badge: Badge
    rung: str
    reason: str
    numbers: tuple[str, ...]
    scope: tuple[Fact, ...]
    earlier: str
    checks: tuple[CheckRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Microtests:
    """All patches of the run, the worst first."""

    summary: str
    ladder: LadderChart
    cards: tuple[PatchCard, ...]
    charts: tuple[SelectionChart, ...]
    more: str


def microtests_of(journal: Journal) -> Microtests | None:
    """Return the patches of a run; None where it examined none."""
    findings = [f for f in journal.findings if f.suite == SUITE and _report(f) is not None]
    if not findings:
        return None
    reports = [report for f in findings if (report := _report(f)) is not None]
    charts = [_chart(report, curve) for report in reports for curve in report.curves]
    hidden = len(charts) - MOST_PANELS
    return Microtests(
        summary=counted(reports),
        ladder=_ladder(reports),
        cards=tuple(_card(f, r) for f, r in zip(findings, reports, strict=True)),
        charts=tuple(charts[:MOST_PANELS]),
        more=f"{plural(hidden, 'further chart')} in run.jsonl." if hidden > 0 else "",
    )


def is_microtests(journal: Journal) -> bool:
    """Tell whether a run is one of microtests: nothing was sent to a server."""
    manifest = journal.manifest
    return manifest is not None and manifest.command[:2] == ("fidelity", "micro")


def hero_of_microtests(hero: Hero, journal: Journal) -> Hero:
    """Return the first screen in the words of patches."""
    reports = [r for f in journal.findings if (r := _report(f)) is not None]
    convicted = [f"{r.title} on {r.source} inputs" for r in reports if _is(r, "convicted")]
    unsettled = [r.title for r in reports if _is(r, "inert") or _is(r, "undecided")]
    if journal.verdict is None:
        headline = "No verdict: the run was cut off."
    elif convicted:
        more = f" and {len(convicted) - 3} more" if len(convicted) > 3 else ""
        headline = f"Convicted: {', '.join(convicted[:3])}{more}."
    elif unsettled or not reports or journal.verdict.exit_code:
        headline = f"Undecided{': ' + ', '.join(unsettled[:4]) if unsettled else ''}."
    else:
        headline = "Every patch examined is exonerated, in its scope."
    steps = [Step(text="Read the scope of each verdict: it holds for nothing else.", link="#micro")]
    if not any(r.source == "harvested" for r in reports):
        steps.append(
            Step(
                text="Synthetic inputs say nothing of yours: dump some of a running engine"
                " (--dump-activations DIR) and examine those.",
                command="fidelity micro --inputs DIR --checkpoint DIR",
            )
        )
    share = 100 / max(1, len(reports))
    return replace(
        hero,
        headline=headline,
        blame="",
        blame_meaning="",
        steps=tuple(steps),
        counts=tuple(
            OutcomeCount(badge=badge, count=n, share=round(share * n, 2))
            for verdict, badge in BADGES.items()
            if (n := sum(report.verdict is verdict for report in reports))
        ),
    )


def subject_of_microtests(subject: Subject, journal: Journal) -> Subject:
    """Return what was measured: no server, but code on a device."""
    manifest = journal.manifest
    if manifest is None:
        return subject
    chosen = {setting.name: setting.value for setting in manifest.settings}
    took = duration(journal.verdict.duration_s) if journal.verdict else "not recorded"
    commit = next((fact for fact in subject.facts if fact.name == "Git commit"), None)
    facts = (
        Fact(name="Device", value=chosen.get("device", ""), note=f"seed {manifest.seed}"),
        Fact(name="Checkpoint", value=manifest.model),
        Fact(name="Inputs", value=chosen.get("inputs") or "synthetic"),
        Fact(name="Time", value=took, note=f"began {when(manifest.at)}"),
        *([commit] if commit else []),
    )
    return replace(subject, facts=facts)


def _is(report: PatchReport, verdict: str) -> bool:
    return report.verdict.value == verdict


def _report(finding: Finding) -> PatchReport | None:
    raw = (finding.profile or {}).get("microtest")
    if raw is None:
        return None
    try:
        return msgspec.convert(raw, PatchReport)
    except msgspec.ValidationError:
        return None


def _ladder(reports: Sequence[PatchReport]) -> LadderChart:
    columns = tuple(
        (_LABEL + (place + 0.5) * _STEP, rung.value) for place, rung in enumerate(RUNGS)
    )
    rows = tuple(
        Rung(
            name=one_line(f"{report.title}, {report.source}", 44),
            title=f"{report.title} on {report.source} inputs: {report.verdict}",
            y=_TOP + (place + 0.5) * _ROW,
            x=columns[RUNGS.index(report.ladder)][0] if report.ladder else None,
            held=_is(report, "exonerated"),
        )
        for place, report in enumerate(reports)
    )
    return LadderChart(
        columns=columns,
        rows=rows,
        label_x=_LABEL - 12,
        width=_LABEL + _STEP * len(RUNGS),
        height=_TOP + _ROW * len(rows) + 6,
    )


def _of_data(scope: Scope) -> str:
    parts = [] if scope.seed is None else [f"seed {scope.seed}"]
    parts += [f"sha256 of what was read {scope.contents[:12]}"] if scope.contents else []
    return ", ".join(parts)


def _card(finding: Finding, report: PatchReport) -> PatchCard:
    scope = report.scope
    questions = (Question.IMPLEMENTATION, Question.FORMAT)
    return PatchCard(
        anchor=anchor("patch", report.stem),
        title=report.title,
        source=report.source,
        badge=BADGES[report.verdict],
        rung=report.ladder.value if report.ladder else "",
        reason=one_line(report.reason, 600),
        numbers=tuple(text for question in questions if (text := number_of(report, question))),
        scope=(
            Fact(name="Code", value=scope.code[:12], note="sha256 of what ran and judged"),
            Fact(name="Formats", value=one_line(scope.dtype, 200)),
            Fact(name="Data", value=scope.data, note=_of_data(scope)),
            Fact(name="Device", value=scope.device),
            Fact(name="Shapes", value=plural(len(scope.shapes), "shape")),
        ),
        earlier=str((finding.profile or {}).get("earlier", "")),
        checks=tuple(
            CheckRow(
                question=check.question.value,
                name=check.name,
                value=figure(check.value),
                limit="" if check.limit is None else figure(check.limit),
                where=one_line(f"{check.where} ({check.cases}×)" if check.where else "", 120),
                tone={True: "pass", False: "fail", None: "na"}[check.holds],
                word={True: "holds", False: "broken", None: "reported"}[check.holds],
            )
            for check in report.checks
        ),
    )


def _chart(report: PatchReport, curve: Curve) -> SelectionChart:
    lengths = [math.log2(point.tokens) for point in curve.points] or [0.0]
    low, span = min(lengths), max(max(lengths) - min(lengths), 1e-9)
    inner = _HEIGHT - _BOTTOM - 8

    def height(share: float) -> float:
        return round(8 + (1 - share) * inner, 1)

    spots = []
    for place, point in enumerate(curve.points):
        kept = point.needles_kept / point.needles if point.needles else 0.0
        needles = f"{point.needles_kept} of {plural(point.needles, 'needle')} kept"
        spots.append(
            Spot(
                x=round(_LEFT + 10 + (lengths[place] - low) / span * (_WIDTH - _LEFT - 40), 1),
                kept_y=height(kept),
                jaccard_y=height(point.jaccard),
                held=point.needles_kept == point.needles,
                label=_short(point.tokens),
                title=f"{point.tokens:,} tokens: {needles}, Jaccard {point.jaccard:.3f}"
                f" over {plural(point.rows, 'row')}",
            )
        )
    asked = sum(point.needles for point in curve.points)
    kept_of = sum(point.needles_kept for point in curve.points)
    return SelectionChart(
        name=f"{report.name}, {curve.label}",
        note=f"{report.source}: {kept_of} of {plural(asked, 'needle')} kept",
        spots=tuple(spots),
        kept=" ".join(f"{s.x},{s.kept_y}" for s in spots) if asked else "",
        jaccard=" ".join(f"{s.x},{s.jaccard_y}" for s in spots),
        gridlines=tuple((height(share), label) for share, label in ((1.0, "1"), (0.0, "0"))),
    )


def _short(tokens: int) -> str:
    return f"{tokens / 1000:g}k" if tokens % 100 == 0 and tokens >= 1000 else f"{tokens:,}"
