"""Each outcome has a word, a symbol and a tone; none is told by colour alone."""

from dataclasses import dataclass

from fidelity.words import Outcome, RunVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """How one outcome is shown: `tone` names a style and an icon, `symbol` stands in plain text."""

    tone: str
    word: str
    symbol: str
    meaning: str = ""


OUTCOMES = {
    Outcome.FAIL: Badge(
        tone="fail", word="fail", symbol="✗", meaning="the deployment broke the claim"
    ),
    Outcome.ERROR: Badge(tone="error", word="error", symbol="!", meaning="could not be measured"),
    Outcome.INCONCLUSIVE: Badge(
        tone="inconclusive",
        word="inconclusive",
        symbol="?",
        meaning="the trials neither prove nor refute the claim",
    ),
    Outcome.PASS: Badge(tone="pass", word="pass", symbol="✓", meaning="the claim holds"),
    Outcome.NOT_APPLICABLE: Badge(
        tone="na",
        word="not applicable",
        symbol="–",
        meaning="the deployment has no such path and does not say that it has",
    ),
}
"""In the order in which a reader wants them: what needs attention first."""

NOT_REACHED = Badge(
    tone="gap", word="not reached", symbol="…", meaning="the run ended before this claim"
)

VERDICTS = {
    RunVerdict.FAITHFUL: Badge(tone="pass", word="Faithful", symbol="✓"),
    RunVerdict.UNFAITHFUL: Badge(tone="fail", word="Unfaithful", symbol="✗"),
    RunVerdict.UNDECIDED: Badge(tone="inconclusive", word="Undecided", symbol="?"),
}
UNMEASURED = Badge(tone="error", word="Undecided", symbol="!")
NOT_CONFORMING = Badge(tone="fail", word="Does not conform", symbol="✗")
NO_VERDICT = Badge(tone="gap", word="No verdict", symbol="…")
