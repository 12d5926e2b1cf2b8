"""Each failure beside the trial that shows how it should have gone."""

from dataclasses import dataclass

from fidelity.records import Finding, Trial
from fidelity.verdicts.axes import LENGTH, PROMPT, RESIDUE, prompt_length
from fidelity.words import Outcome
from reports.view_dialogue import Conversation, conversation_of
from reports.view_journal import Journal
from reports.view_outcome import OUTCOMES, Badge
from reports.view_text import TITLE_CHARS, anchor, cut
from reports.view_verdict import replay_command

PER_CLAIM = 3
IN_ALL = 18

LOST = {
    "rendering": "Lost in rendering: the prompt has fewer tokens than the turns before it hold, so "
    "the server dropped or cut text before the model saw it.",
    "attention": "Lost in attention: the prompt has the length that it must have, so the model was "
    "given the fact and did not use it.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A failure and its control."""

    anchor: str
    badge: Badge
    """Of the claim: a pass may bear a miss."""
    title: str
    expected: str
    lost: str
    failure: Conversation
    control: Conversation | None
    control_label: str
    replay: str
    open: bool


def pairs_of(journal: Journal) -> tuple[Pair, ...]:
    """Return the failures to show: a few for each claim, those of a pass last and closed."""
    chosen: list[tuple[Finding, Trial, bool]] = []
    seen: set[str] = set()
    for finding in _in_order(journal):
        first = finding.outcome is not Outcome.PASS
        for trial in _misses(journal, finding):
            if trial.id not in seen and len(chosen) < IN_ALL:
                seen.add(trial.id)
                chosen.append((finding, trial, first))
                first = False
    return tuple(_pair(journal, finding, trial, first) for finding, trial, first in chosen)


def _in_order(journal: Journal) -> list[Finding]:
    order = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.PASS)
    findings = [finding for finding in journal.findings if finding.outcome in order]
    return sorted(findings, key=lambda finding: order.index(finding.outcome))


def _misses(journal: Journal, finding: Finding) -> list[Trial]:
    """Return up to PER_CLAIM misses of a claim, those of a new kind first."""
    controls = journal.control_trials
    missed = [
        trial
        for trial in journal.trials_of(finding)
        if trial.ok is False and trial.id not in controls and trial.exchanges
    ]
    kinds: set[tuple[str, str]] = set()
    fresh: list[Trial] = []
    again: list[Trial] = []
    for trial in missed:
        kind = (trial.score or "", trial.lost)
        (again if kind in kinds else fresh).append(trial)
        kinds.add(kind)
    return (fresh + again)[:PER_CLAIM]


def _pair(journal: Journal, finding: Finding, trial: Trial, first: bool) -> Pair:
    control, label = _control(journal, trial)
    return Pair(
        anchor=anchor("c", trial.id),
        badge=OUTCOMES[finding.outcome],
        title=cut(finding.title or finding.claim, TITLE_CHARS),
        expected=cut(trial.expected, 200),
        lost=LOST.get(trial.lost, ""),
        failure=conversation_of(trial),
        control=conversation_of(control) if control else None,
        control_label=label,
        replay=replay_command(journal, trial.id),
        open=first,
    )


def _control(journal: Journal, trial: Trial) -> tuple[Trial | None, str]:
    """Return the trial that shows how it should have gone, and what it is to the failure."""
    right = [other for other in journal.trials if other.ok and other.exchanges]
    same = [other for other in right if other.claim == trial.claim]
    arms = [other for other in same if _arm(other) != _arm(trial)]
    if arms:
        best = min(arms, key=lambda other: (*_unlike(trial, other), other.id))
        arm = f"arm “{best.arm}”" if best.arm else "the plain arm"
        own = trial.key and best.key == trial.key
        return best, f"Control: {'the same probe' if own else 'the nearest probe'} in {arm}"
    near = same or [other for other in right if other.suite == trial.suite]
    if near:
        best = min(near, key=lambda other: (*_unlike(trial, other), other.id))
        return best, "The nearest trial that went right"
    return None, "No trial of this suite went right, so there is nothing to compare with."


def _arm(trial: Trial) -> str:
    """Return the arm of a trial; fresh probes of a class that missed are no arm of their own."""
    return "" if trial.stage > 1 else trial.arm


def _unlike(trial: Trial, other: Trial) -> tuple[bool, int, float]:
    """Return how far another trial is from this one: another probe, other axes, other length."""
    different = sum(
        other.cell.get(axis) != value
        for axis, value in trial.cell.items()
        if axis not in _LENGTHS and not axis.startswith(RESIDUE)
    )
    here, there = prompt_length(trial), prompt_length(other)
    apart = abs(here - there) if here is not None and there is not None else 0.0
    return not (trial.key and trial.key == other.key), different, apart


_LENGTHS = (LENGTH, PROMPT)
