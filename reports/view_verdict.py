"""The first screen: the verdict in one sentence, whom it blames, and what to do next."""

import shlex
from dataclasses import dataclass

from fidelity.records import Verdict
from fidelity.words import Blame, Outcome, RunVerdict
from reports.view_journal import Journal
from reports.view_outcome import (
    NO_VERDICT,
    NOT_CONFORMING,
    NOT_REACHED,
    OUTCOMES,
    UNMEASURED,
    VERDICTS,
    Badge,
)
from reports.view_text import joined, one_line, plural

BLAMED = {
    Blame.DEPLOYMENT: "the deployment",
    Blame.MODEL_LIMIT: "the model’s own limit",
    Blame.UNKNOWN: "not known yet",
}
BLAME_MEANING = {
    Blame.DEPLOYMENT: "The serving stack, not the model: start with its patches and its cache.",
    Blame.MODEL_LIMIT: "The model cannot do more; nothing here speaks against the serving stack.",
    Blame.UNKNOWN: "A failure of recall alone cannot tell a broken stack from a weak model; "
    "a twin, a control or a stock deployment has to speak.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCount:
    """How many claims came out one way; `share` is a percentage of all claims."""

    badge: Badge
    count: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do next, with the command that does it where there is one."""

    text: str
    command: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hero:
    """What a reader must know after five seconds."""

    badge: Badge
    headline: str
    sentence: str
    blame: str
    blame_meaning: str
    partial: str
    counts: tuple[OutcomeCount, ...]
    steps: tuple[Step, ...]


def hero_of(journal: Journal) -> Hero:
    """Return the first screen of a run."""
    verdict = journal.verdict
    badge = _badge(journal)
    blame = verdict.blame if verdict else None
    return Hero(
        badge=badge,
        headline=_headline(journal, badge),
        sentence=_lead(verdict) if verdict else _sentence_of_a_killed_run(journal),
        blame=BLAMED[blame] if blame else "",
        blame_meaning=BLAME_MEANING[blame] if blame else "",
        partial=_partial(journal),
        counts=_counts(journal),
        steps=_steps(journal),
    )


def _badge(journal: Journal) -> Badge:
    if journal.verdict is None:
        return NO_VERDICT
    settled = not _of(journal, Outcome.INCONCLUSIVE) and not _of(journal, Outcome.FAIL)
    if journal.verdict.verdict is RunVerdict.UNDECIDED and settled and _of(journal, Outcome.ERROR):
        return UNMEASURED
    if _api_only(journal):
        return NOT_CONFORMING
    return VERDICTS[journal.verdict.verdict]


def _api_only(journal: Journal) -> bool:
    """True when the context is read, and what fails is about the API alone."""
    verdict = journal.verdict
    faithful = verdict is not None and verdict.verdict is RunVerdict.FAITHFUL
    return faithful and _of(journal, Outcome.FAIL) > 0


def _of(journal: Journal, outcome: Outcome) -> int:
    return sum(finding.outcome is outcome for finding in journal.findings)


def _headline(journal: Journal, badge: Badge) -> str:
    verdict = journal.verdict
    if verdict is None:
        return "No verdict: the run was cut off."
    if verdict.verdict is RunVerdict.UNFAITHFUL:
        return _UNFAITHFUL[verdict.blame or Blame.UNKNOWN]
    if _api_only(journal):
        return "It reads its context, and its API does not conform."
    if verdict.verdict is RunVerdict.FAITHFUL:
        return "Faithful. This deployment reads its context."
    return f"Undecided. {_why_undecided(journal, badge)}"


_UNFAITHFUL = {
    Blame.DEPLOYMENT: "Unfaithful. The deployment is to blame.",
    Blame.MODEL_LIMIT: "Unfaithful, at the model’s own limit.",
    Blame.UNKNOWN: "Unfaithful. Who is to blame is not known yet.",
}


def _why_undecided(journal: Journal, badge: Badge) -> str:
    verdict = journal.verdict
    if verdict and verdict.interrupted:
        return "The run was interrupted."
    if verdict and verdict.blame is Blame.MODEL_LIMIT:
        return "What fails is at the model’s own limit."
    if _of(journal, Outcome.FAIL):
        return "Claims fail; who is to blame is not known yet."
    if badge is UNMEASURED:
        some = _of(journal, Outcome.PASS)
        return "Some claims could not be measured." if some else "Nothing could be measured."
    if verdict and verdict.counts.get("unmet_expectations"):
        return "What the deployment promises is absent."
    return "The trials do not settle it."


def _lead(verdict: Verdict) -> str:
    """Return the sentence of the verdict without the word that the headline has said already."""
    said = verdict.sentence.removeprefix(f"{verdict.verdict.value}:").strip()
    return said[:1].upper() + said[1:]


def _sentence_of_a_killed_run(journal: Journal) -> str:
    if journal.manifest is None:
        return "The journal holds no manifest, so it does not say what was measured."
    done = f"{len(journal.findings)} of {plural(len(journal.planned), 'claim')}"
    return f"The journal ends after {done} and {plural(len(journal.trials), 'trial')}."


def _partial(journal: Journal) -> str:
    if not journal.partial:
        return ""
    cause = "was interrupted" if journal.verdict else "ended without a verdict"
    left = len(journal.unreached)
    missing = f"; {plural(left, 'claim')} of the plan not reached" if left else ""
    return f"Partial result: the run {cause}{missing}. Nothing below speaks for what is missing."


def _counts(journal: Journal) -> tuple[OutcomeCount, ...]:
    pairs = [(badge, _of(journal, outcome)) for outcome, badge in OUTCOMES.items()]
    pairs.append((NOT_REACHED, len(journal.unreached)))
    total = sum(count for _, count in pairs) or 1
    return tuple(
        OutcomeCount(badge=badge, count=count, share=round(100 * count / total, 2))
        for badge, count in pairs
        if count
    )


def _steps(journal: Journal) -> tuple[Step, ...]:
    steps = []
    if journal.partial:
        steps.append(_resume(journal))
    if _of(journal, Outcome.FAIL):
        steps += _after_a_failure(journal)
    elif _of(journal, Outcome.ERROR):
        steps.append(_ask_the_doctor(journal))
    elif _of(journal, Outcome.INCONCLUSIVE):
        steps.append(Step(text="Repeat with more trials: a larger budget, the same thresholds."))
    if not steps:
        steps = [
            Step(text="Nothing has to be done."),
            Step(text="Read what this run never exercised.", link="#coverage"),
        ]
    return tuple(steps)


def _resume(journal: Journal) -> Step:
    words = list(journal.manifest.command) if journal.manifest else []
    prefix = "--" if words[:1] == ["fidelity"] else "--fidelity-"
    if f"{prefix}resume" not in words:
        words.append(f"{prefix}resume")
    if not any(word.startswith(f"{prefix}run-dir") for word in words):
        words.append(f"{prefix}run-dir={journal.folder}")
    known = journal.manifest and journal.manifest.command
    return Step(
        text="Finish the run; no trial is asked twice.", command=shlex.join(words) if known else ""
    )


def _after_a_failure(journal: Journal) -> list[Step]:
    steps = [Step(text="Read the failures beside their controls.", link="#conversations")]
    for finding in journal.findings:
        missed = [trial for trial in journal.trials_of(finding) if trial.ok is False]
        if finding.outcome is Outcome.FAIL and missed:
            steps.append(
                Step(
                    text="Send the first miss again.",
                    command=replay_command(journal, missed[0].id),
                )
            )
            break
    on = [patch.name for patch in journal.patches if patch.state == "on" and patch.calls != 0]
    suspect = journal.verdict is None or journal.verdict.blame is not Blame.MODEL_LIMIT
    if on and suspect:
        names = [one_line(name, 40) for name in on[:6]]
        more = [f"{len(on) - 6} more"] if len(on) > 6 else []
        steps.append(Step(text=f"Switch the patches off, one at a time: {joined(names + more)}."))
    return steps


def _ask_the_doctor(journal: Journal) -> Step:
    url = journal.manifest.base_url if journal.manifest else ""
    return Step(
        text="Find out what the server can and cannot do.",
        command=f"fidelity doctor {shlex.quote(url)}" if url else "",
    )


def replay_command(journal: Journal, trial: str) -> str:
    """Return the command line that sends one trial again."""
    return f"fidelity replay {shlex.quote(journal.folder)} {shlex.quote(trial)}"
