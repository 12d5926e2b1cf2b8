"""A card for each reason why a claim did not pass, with the trials behind it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fidelity.records import Finding, Trial
from fidelity.verdicts.axes import class_words, pattern
from fidelity.verdicts.parts import badness
from fidelity.words import Outcome
from reports.view_axes import cell_text
from reports.view_bins import Tally
from reports.view_claims import ClaimRow, row_of
from reports.view_journal import Journal
from reports.view_outcome import OUTCOMES, Badge
from reports.view_text import TITLE_CHARS, anchor, cut, joined, one_line, plural, thousands
from reports.view_verdict import replay_command

MISSES_PER_CARD = 6
PARTS_PER_CARD = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One trial that missed."""

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
    reasons: tuple[tuple[str, str], ...]
    """Title and reason of each further part that came out as its claim did."""
    pattern: str
    """What the misses have in common, "" where nothing stands out."""
    evidence: tuple[str, ...]
    misses: tuple[Miss, ...]
    more: str
    replay: str


def cards_of(journal: Journal, conversations: dict[str, str]) -> tuple[FindingCard, ...]:
    """Return a card for each reason, worst first; `conversations` gives the anchors of chats.

    A dead server is one card, however many claims it spoiled.
    """
    groups: dict[tuple[Outcome, str], list[Finding]] = {}
    for finding in sorted(journal.findings, key=badness):
        if finding.outcome is not Outcome.PASS:
            groups.setdefault((finding.outcome, finding.reason), []).append(finding)
    shown: set[str] = set()
    return tuple(_card(journal, group, conversations, shown) for group in groups.values())


def _card(
    journal: Journal,
    findings: Sequence[Finding],
    conversations: dict[str, str],
    above: set[str],
) -> FindingCard:
    """Return one card; `above` holds the trials of earlier cards, and gains those of this one."""
    controls = journal.control_trials
    every = {trial.id: trial for f in findings for trial in journal.trials_of(f)}
    trials = [trial for trial in every.values() if trial.id not in controls]
    place = {name: number for number, name in enumerate(conversations)}
    bad = sorted(
        (trial for trial in trials if trial.ok is False),
        key=lambda trial: place.get(trial.id, len(place)),
    )
    new = [trial for trial in bad if trial.id not in above]
    shown = new[:MISSES_PER_CARD]
    above |= {trial.id for trial in shown}
    rows = tuple(row_of(finding) for finding in findings)
    return FindingCard(
        anchor=rows[0].href,
        rows=rows,
        badge=OUTCOMES[findings[0].outcome],
        reason=cut(findings[0].reason, 1500) or "No reason is recorded.",
        reasons=_reasons(findings[0]) if len(findings) == 1 else (),
        pattern=pattern(trials) if len(findings) == 1 else "",
        evidence=(*_arms(journal, findings), *_evidence(findings, trials)),
        misses=tuple(_miss(trial, conversations) for trial in shown),
        more=_more(len(bad) - len(new), len(new) - len(shown)),
        replay=replay_command(journal, shown[0].id) if shown else "",
    )


def _reasons(finding: Finding) -> tuple[tuple[str, str], ...]:
    """Return the parts that came out as the claim did, less the one that its reason tells."""
    return tuple(
        (cut(part.title, TITLE_CHARS), cut(part.reason, 600))
        for part in finding.parts
        if part.outcome is finding.outcome and part.reason not in finding.reason
    )[:PARTS_PER_CARD]


def _more(above: int, further: int) -> str:
    parts = [f"{plural(above, 'trial')} listed above"] if above else []
    if further:
        parts.append(f"{plural(further, 'further trial')} in run.jsonl")
    return "; ".join(parts)


def _arms(journal: Journal, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return how each arm of a claim did, for claims that have several."""
    lines = []
    for finding in findings[:4]:
        arms: dict[str, Tally] = {}
        for trial in journal.trials:
            if trial.claim == finding.claim and trial.id not in journal.control_trials:
                arms.setdefault(_arm(trial), Tally()).add(trial)
        if len(arms) > 1:
            counts = [f"{arm} {counts.text}" for arm, counts in sorted(arms.items())]
            lines.append(f"Right by arm: {joined(counts)}.")
    return tuple(lines)


def _arm(trial: Trial) -> str:
    if trial.stage > 1:
        name = trial.arm.removeprefix("class ")
        return f"fresh probes at {class_words(name) if '=' in name else name or 'a miss'}"
    return trial.arm or "plain"


def _evidence(findings: Sequence[Finding], trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return what the trials of a card show, one sentence each."""
    lines = []
    scores = Counter(str(trial.score or "no score") for trial in trials if trial.ok is False)
    if scores:
        kinds = [f"{count} {score}" for score, count in scores.most_common()]
        lines.append(f"Answers that missed: {joined(kinds)}.")
    lost = Counter(trial.lost for trial in trials if trial.ok is False and trial.lost)
    if lost:
        kinds = [f"{count} in {where}" for where, count in lost.most_common()]
        lines.append(f"Where it was lost, by token accounting: {joined(kinds)}.")
    errors = Counter(trial.error for trial in trials if trial.ok is None)
    for text, count in errors.most_common(4):
        known = any(text and text in finding.reason for finding in findings)
        why = "for this reason" if known else one_line(text, 300) or "no error recorded"
        lines.append(f"{plural(count, 'trial')} could not be measured: {why}")
    return tuple(dict.fromkeys(line for line in lines if line))


def _miss(trial: Trial, conversations: dict[str, str]) -> Miss:
    last = trial.exchanges[-1] if trial.exchanges else None
    got = str(trial.details.get("parts") or "")  # of a comparison or a graded measure
    got = got or ((last.text or last.reasoning) if last else "")
    tokens = ""
    if last and last.prompt_tokens is not None:
        tokens = f"{thousands(last.prompt_tokens)} + {thousands(last.completion_tokens)}"
    return Miss(
        anchor=anchor("t", trial.id),
        trial=trial.id,
        href=conversations.get(trial.id, ""),
        cell=cell_text(trial),
        score=str(trial.score or "wrong"),
        expected=one_line(trial.expected, 80),
        got=one_line(got, 140) or "(empty answer)",
        lost=trial.lost,
        seed=trial.seed,
        tokens=tokens,
        fresh=trial.stage > 1,
    )


def miss_links(cards: Sequence[FindingCard], conversations: Mapping[str, str]) -> dict[str, str]:
    """Return the anchor of each miss that the page shows, by trial: its chat before its row."""
    rows = {miss.trial: miss.anchor for card in cards for miss in card.misses}
    return rows | dict(conversations)
