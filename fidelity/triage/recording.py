"""What a triage writes into the journal, so that the report shows it like any other run."""

from fidelity.endpoint.caps import Spent
from fidelity.records import Finding, Verdict
from fidelity.runs.journal import Journal
from fidelity.triage.answers import Answer, Answered
from fidelity.triage.decision import Where
from fidelity.triage.page import Outcome
from fidelity.verdicts.verdict import EXIT_FAIL, EXIT_UNDECIDED
from fidelity.words import Blame, Ladder, RunVerdict
from fidelity.words import Outcome as Word

CONVERSATION = "triage/conversation"
_QUESTIONS = ("rendering", "stream", "cold", "short", "length", "reasoning", "hop", "stock")
CLAIMS = (CONVERSATION, *(f"triage/{name}" for name in _QUESTIONS))
_WORDS = {
    Answered.CLEARED: Word.PASS,
    Answered.POINTS: Word.FAIL,
    Answered.OPEN: Word.INCONCLUSIVE,
    Answered.NOT_ASKED: Word.NOT_APPLICABLE,
}


def findings_of(outcome: Outcome, journal: Journal) -> list[Finding]:
    """Return the findings: of the chat itself, and of each question that was asked."""
    decision = outcome.decision
    said = f"{decision.where}: {decision.because}"
    if decision.left:
        said += f". Suspects left: {'; '.join(decision.left)}"
    fails = decision.blame is not None
    whole = Finding(
        claim=CONVERSATION,
        suite="triage",
        title=f"In the given chat {outcome.expectation}",
        outcome=_outcome_of(outcome),
        reason=said[:4_000],
        ladder=Ladder.STRUCTURAL if fails and decision.blame is Blame.DEPLOYMENT else None,
        blame=decision.blame,
        trials=_trials(journal, "replay", "smallest", "shrink"),
    )
    answers = {answer.name: answer for answer in outcome.answers}
    return [whole, *(_finding(name, answers.get(name)) for name in _QUESTIONS)]


def _outcome_of(outcome: Outcome) -> Word:
    if outcome.decision.where is Where.NOT_REPRODUCED:
        return Word.INCONCLUSIVE  # a few replays without a failure certify nothing
    return Word.FAIL if outcome.decision.blame is not None else Word.INCONCLUSIVE


def _finding(name: str, answer: Answer | None) -> Finding:
    if answer is None:
        return Finding(
            claim=f"triage/{name}",
            suite="triage",
            title=name,
            outcome=Word.NOT_APPLICABLE,
            reason="nothing failed, so that it was not asked",
        )
    word = _WORDS[answer.answered]
    return Finding(
        claim=f"triage/{name}",
        suite="triage",
        title=answer.asked,
        outcome=word,
        reason=answer.says[:4_000],
        blame=Blame.UNKNOWN if word is Word.FAIL else None,
        trials=answer.trials,
    )


def _trials(journal: Journal, *questions: str) -> tuple[str, ...]:
    claims = {f"triage/{name}" for name in questions}
    return tuple(t.id for t in journal.trials.values() if t.claim in claims)


def verdict_of(outcome: Outcome, spent: Spent, duration_s: float) -> Verdict:
    """Return the last record: 1 when the chat fails, 0 when it does not, 2 when nobody can tell.

    A chat that does not fail is no certificate: no verdict of a triage is `faithful`.
    """
    decision = outcome.decision
    word = _outcome_of(outcome)
    if decision.where is Where.NOT_REPRODUCED:
        verdict, code = RunVerdict.UNDECIDED, 0
    elif word is Word.FAIL:
        faulty = decision.blame is Blame.DEPLOYMENT
        verdict = RunVerdict.UNFAITHFUL if faulty else RunVerdict.UNDECIDED
        code = EXIT_FAIL
    else:
        verdict, code = RunVerdict.UNDECIDED, EXIT_UNDECIDED
    return Verdict(
        verdict=verdict,
        blame=decision.blame,
        sentence=f"{decision.where}: {decision.because}",
        exit_code=code,
        duration_s=round(duration_s, 3),
        requests=spent.requests,
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
    )
