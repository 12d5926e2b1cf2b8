"""Claims: the table of all of them, and a card for each that did not pass."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fidelity.records import Finding, Trial
from fidelity.words import Ladder, Outcome
from reports.view_axes import cell_text, pattern
from reports.view_journal import Journal
from reports.view_outcome import OUTCOMES, Badge
from reports.view_text import anchor, cut, figure, joined, one_line, plural, thousands
from reports.view_verdict import BLAMED, replay_command

MISSES_PER_CARD = 10
RUNGS = tuple(Ladder)


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
class Miss:
    """One trial that missed or could not be measured."""

    anchor: str
    trial: str
    href: str
    cell: str
    score: str
    expected: str
    got: str
    lost: str
    seed: int
    tokens: str
    fresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCard:
    """Findings that are not a pass and share one reason."""

    anchor: str
    rows: tuple[ClaimRow, ...]
    badge: Badge
    reason: str
    evidence: tuple[str, ...]
    misses: tuple[Miss, ...]
    more: str
    replay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All claims of the run."""

    suites: tuple[SuiteRows, ...]
    cards: tuple[FindingCard, ...]
    summary: str
    unreached: tuple[str, ...]
    missing: str


def claims_of(journal: Journal, conversations: dict[str, str]) -> Claims:
    """Return the claims; `conversations` gives the anchor of each trial that is shown as a chat."""
    rows: dict[str, list[ClaimRow]] = {}
    for finding in journal.findings:
        rows.setdefault(finding.suite, []).append(row_of(finding))
    return Claims(
        suites=tuple(SuiteRows(suite=suite, rows=tuple(lines)) for suite, lines in rows.items()),
        cards=_cards(journal, conversations),
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
    return ClaimRow(
        badge=OUTCOMES[finding.outcome],
        title=finding.title or finding.claim,
        claim=finding.claim,
        counts="" if finding.k is None or finding.n is None else f"{finding.k}/{finding.n}",
        effect=_effect(finding),
        bounds=_bounds(finding),
        threshold="" if finding.threshold is None else figure(finding.threshold),
        gauge=_gauge(finding),
        ladder=finding.ladder.value if finding.ladder else "",
        rung=RUNGS.index(finding.ladder) + 1 if finding.ladder else 0,
        blame=BLAMED[finding.blame] if finding.blame else "",
        could_see=finding.minimum_detectable_effect or ("not stated" if passed else ""),
        paths=", ".join(finding.paths),
        href="" if passed else anchor("f", f"{finding.outcome} {finding.reason}"),
        note="provisional: Holm has not run" if finding.provisional else "",
    )


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
    values = [v for v in (*(finding.interval or ()), finding.effect, finding.threshold) if v]
    if finding.interval is None or finding.k is None or any(not 0 <= v <= 1 for v in values):
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


_CARD_ORDER = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE)


def _cards(journal: Journal, conversations: dict[str, str]) -> tuple[FindingCard, ...]:
    """Return a card for each reason: a dead server is one card, however many claims it spoiled."""
    groups: dict[tuple[Outcome, str], list[Finding]] = {}
    for finding in journal.findings:
        if finding.outcome is not Outcome.PASS:
            groups.setdefault((finding.outcome, finding.reason), []).append(finding)

    def order(group: list[Finding]) -> tuple[int, int]:
        worst = max(RUNGS.index(f.ladder) if f.ladder else -1 for f in group)
        return _CARD_ORDER.index(group[0].outcome), -worst

    return tuple(
        _card(journal, group, conversations) for group in sorted(groups.values(), key=order)
    )


def _card(
    journal: Journal, findings: Sequence[Finding], conversations: dict[str, str]
) -> FindingCard:
    controls = journal.control_trials
    trials = [
        trial
        for finding in findings
        for trial in journal.trials_of(finding)
        if trial.id not in controls
    ]
    bad = [trial for trial in trials if not trial.ok]
    bad.sort(key=lambda trial: (trial.ok is None, trial.id not in conversations))
    rows = tuple(row_of(finding) for finding in findings)
    shown = bad[:MISSES_PER_CARD]
    hidden = len(bad) - len(shown)
    outcome = findings[0].outcome
    return FindingCard(
        anchor=rows[0].href,
        rows=rows,
        badge=OUTCOMES[outcome],
        reason=cut(findings[0].reason, 1500) or "No reason is recorded.",
        evidence=_evidence(findings, trials),
        misses=tuple(_miss(trial, conversations) for trial in shown),
        more=f"{plural(hidden, 'further trial')} in run.jsonl" if hidden else "",
        replay=replay_command(journal, shown[0].id) if shown else "",
    )


def _evidence(findings: Sequence[Finding], trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return what the trials of a card show, one sentence each."""
    lines = [
        pattern([trial for trial in trials if trial.claim == finding.claim])
        for finding in findings[:4]
    ]
    scores = Counter(str(trial.score or "no score") for trial in trials if trial.ok is False)
    if scores:
        kinds = [f"{count} {score}" for score, count in scores.most_common()]
        lines.append(f"Answers that missed: {joined(kinds)}.")
    lost = Counter(trial.lost for trial in trials if trial.ok is False and trial.lost)
    if lost:
        kinds = [f"{count} in {where}" for where, count in lost.most_common()]
        lines.append(f"Where it was lost, by token accounting: {joined(kinds)}.")
    errors = Counter(one_line(trial.error, 300) for trial in trials if trial.ok is None)
    for text, count in errors.most_common(4):
        lines.append(f"{plural(count, 'trial')} not measurable: {text or 'no error recorded'}")
    return tuple(dict.fromkeys(line for line in lines if line))


def _miss(trial: Trial, conversations: dict[str, str]) -> Miss:
    last = trial.exchanges[-1] if trial.exchanges else None
    got = trial.error
    if last and trial.ok is False:
        got = last.text or last.reasoning or "(empty answer)"
    tokens = ""
    if last and last.prompt_tokens is not None:
        tokens = f"{thousands(last.prompt_tokens)} + {thousands(last.completion_tokens)}"
    return Miss(
        anchor=anchor("t", trial.id),
        trial=trial.id,
        href=conversations.get(trial.id, ""),
        cell=cell_text(trial),
        score=str(trial.score or ("not measured" if trial.ok is None else "wrong")),
        expected=one_line(trial.expected, 80),
        got=one_line(got, 140),
        lost=trial.lost,
        seed=trial.seed,
        tokens=tokens,
        fresh=trial.stage > 1,
    )


def miss_links(cards: Sequence[FindingCard]) -> dict[str, str]:
    """Return the anchor of each miss that a card shows, by trial."""
    return {miss.trial: miss.href or miss.anchor for card in cards for miss in card.misses}
