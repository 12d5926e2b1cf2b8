"""The view model of a report: everything that a template prints, computed, sorted and worded."""

from collections.abc import Iterable
from dataclasses import dataclass

from fidelity.records import AnyRecord
from fidelity.words import Outcome
from reports.view_claims import Claims, claims_of
from reports.view_controls import Controls, controls_of
from reports.view_coverage import Coverage, coverage_of
from reports.view_data import data_of
from reports.view_findings import FindingCard, cards_of, miss_links
from reports.view_gain import Gain, gain_of
from reports.view_golden import Golden, golden_of
from reports.view_journal import Journal, sort_journal
from reports.view_microtests import (
    Microtests,
    hero_of_microtests,
    is_microtests,
    microtests_of,
    subject_of_microtests,
)
from reports.view_needles import Needles, needles_of
from reports.view_outcome import OUTCOMES
from reports.view_pairs import Pair, pairs_of
from reports.view_reach import Reach, reach_of
from reports.view_stateful import FailedScript, scripts_of
from reports.view_subject import Subject, subject_of
from reports.view_twins import Twins, twins_of
from reports.view_verdict import Hero, hero_of

FAILED = OUTCOMES[Outcome.FAIL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One run, ready to be printed."""

    title: str
    hero: Hero
    clue: str
    """What the misses of the failed claims have in common, "" where nothing stands out."""
    subject: Subject
    cards: tuple[FindingCard, ...]
    claims: Claims
    needles: Needles
    gain: Gain | None
    golden: Golden | None
    twins: Twins | None
    micro: Microtests | None
    served: bool
    """Whether a deployment was measured; False for a run of microtests."""
    scripts: tuple[FailedScript, ...]
    reach: Reach
    coverage: Coverage
    pairs: tuple[Pair, ...]
    pairs_missing: str
    controls: Controls
    holm: tuple[str, ...]
    holm_missing: str
    data: str


def report_of(records: Iterable[AnyRecord]) -> Report:
    """Return the view model of a run; a journal of no records gives an empty report, no error."""
    journal = sort_journal(records)
    pairs = pairs_of(journal)
    conversations = {pair.failure.trial: pair.anchor for pair in pairs}
    cards = cards_of(journal, conversations)
    hero, subject = hero_of(journal), subject_of(journal)
    if is_microtests(journal):
        hero = hero_of_microtests(hero, journal)
        subject = subject_of_microtests(subject, journal)
    return Report(
        title=_title(journal, hero),
        hero=hero,
        clue=next((card.pattern for card in cards if card.pattern and card.badge is FAILED), ""),
        subject=subject,
        cards=cards,
        claims=claims_of(journal),
        needles=needles_of(journal, miss_links(cards, conversations)),
        gain=gain_of(journal),
        golden=golden_of(journal),
        twins=twins_of(journal),
        micro=microtests_of(journal),
        served=not is_microtests(journal),
        scripts=scripts_of(journal),
        reach=reach_of(journal),
        coverage=coverage_of(journal),
        pairs=pairs,
        pairs_missing="" if pairs else _why_no_pairs(journal),
        controls=controls_of(journal),
        holm=journal.verdict.holm if journal.verdict else (),
        holm_missing="" if journal.verdict and journal.verdict.holm else _why_no_holm(journal),
        data=data_of(journal),
    )


def _title(journal: Journal, hero: Hero) -> str:
    name = journal.manifest.deployment if journal.manifest else "unknown deployment"
    return f"{hero.badge.word}: {name}"


def _why_no_pairs(journal: Journal) -> str:
    if not journal.trials:
        return "No trial was run, so there is no conversation to show."
    if all(trial.ok is None for trial in journal.trials):
        return "No trial was answered, so there is no conversation to show."
    return "Every trial that was scored is right: there is no failure to show."


def _why_no_holm(journal: Journal) -> str:
    if journal.verdict is None:
        return "The run ended before Holm’s procedure ran; its findings are provisional."
    return "The run made no fail decision, so there was nothing to correct."
