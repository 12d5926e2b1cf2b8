"""What the gate says: one item a question, each with its rule, its outcome and its place."""

from collections.abc import Sequence
from dataclasses import dataclass

from fidelity.words import Outcome

RULES = {
    "microtest": "A patch that was changed passes its microtest.",
    "patch-without-microtest": "Every patch has a microtest.",
    "microtest-loosened": "A microtest does not ask for less than it did.",
    "patch-without-entry": "Every file of a patched area belongs to a [[patch]] of fidelity.toml.",
    "rules-changed": "A change does not bend the rules by which it is judged.",
    "microtest-changed": "What judges a patch changes provably for no less, or by consent.",
    "worse-than-baseline": "No effect is worse than in the baseline by more than the margin.",
    "claim": "The suites that a patch can affect pass.",
    "patch-not-exercised": "The patch was on, and ran, while the suites were run.",
}
"""Every rule, and what it asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One answer of the gate.

    Attributes:
        rule: a key of RULES.
        subject: the patch, file or claim that it is about.
        outcome: as everywhere; `not_applicable` is told and decides nothing.
        message: one sentence.
        path: file of the change, relative to fidelity.toml; "" where there is none.
        line: in that file, from 1.
        duration_s: what answering it took.
    """

    rule: str
    subject: str
    outcome: Outcome
    message: str
    path: str = ""
    line: int = 1
    duration_s: float = 0.0


def exit_code(items: Sequence[Item]) -> int:
    """Return 1 for a fail, else 2 for what could not be measured, else 0."""
    found = {item.outcome for item in items}
    if Outcome.FAIL in found:
        return 1
    return 2 if found & {Outcome.ERROR, Outcome.INCONCLUSIVE} else 0


def shown(text: str) -> str:
    """Return a file name or message that any terminal and any file can hold, on one line."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in plain)
