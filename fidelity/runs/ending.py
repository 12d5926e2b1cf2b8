"""How a test ended: the outcome that its exception stands for, and what pytest's report says."""

from typing import TYPE_CHECKING

import pytest

from fidelity.errors import CapSpent, FidelityError, Inconclusive, NotApplicable, Violation
from fidelity.words import Outcome

if TYPE_CHECKING:
    from fidelity.records import Finding

OUTCOME = "fidelity_outcome"
"""Attribute of a pytest report that holds the outcome of its claim."""


def ending_of(raised: BaseException | None, decided: "Finding | None") -> tuple[Outcome, str]:
    """Map how a test ended to an outcome and a reason.

    Args:
        raised: what ended the test; anything unknown is trouble of the harness.
        decided: its last decision, None when there was none.
    """
    if raised is None:
        if decided is None:
            return Outcome.ERROR, "the test ended without a decision: it claims nothing"
        return decided.outcome, decided.reason
    match raised:
        case Violation():
            outcome = Outcome.FAIL
        case Inconclusive() | CapSpent():
            outcome = Outcome.INCONCLUSIVE
        case NotApplicable():
            outcome = Outcome.NOT_APPLICABLE
        case pytest.skip.Exception():
            return Outcome.NOT_APPLICABLE, str(raised.msg or "skipped")
        case FidelityError():
            outcome = Outcome.ERROR
        case _:
            return Outcome.ERROR, f"the suite broke: {type(raised).__name__}: {raised}"
    return outcome, str(raised)


def show(
    item: pytest.Item,
    report: pytest.TestReport,
    outcome: Outcome,
    reason: str,
    raised: BaseException | None,
) -> None:
    """Let pytest's report say the outcome; a sentence stands where a traceback would not help."""
    setattr(report, OUTCOME, outcome)
    if outcome is Outcome.PASS:
        return
    if outcome is Outcome.NOT_APPLICABLE:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, reason)
        return
    report.outcome = "failed"
    if raised is None or isinstance(raised, FidelityError):
        report.longrepr = f"{outcome}: {reason}"
