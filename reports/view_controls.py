"""Controls: trials whose outcome was known beforehand, and whether they came out that way."""

from dataclasses import dataclass

from fidelity.records import Control
from fidelity.words import ControlKind
from reports.view_journal import Journal
from reports.view_text import one_line, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRow:
    """One control."""

    ok: bool
    kind: str
    claim: str
    what: str
    expected: str
    observed: str
    trials: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """All controls of the run, those that did not come out first."""

    rows: tuple[ControlRow, ...]
    summary: str
    missing: str


def controls_of(journal: Journal) -> Controls:
    """Return the controls of a run."""
    rows = sorted((_row(control) for control in journal.controls), key=lambda row: row.ok)
    good = sum(row.ok for row in rows)
    return Controls(
        rows=tuple(rows),
        summary=f"{good} of {len(rows)} as they must" if rows else "",
        missing=""
        if rows
        else "No control ran: nothing shows that these claims can fail. A pass without a control "
        "is worth little.",
    )


def _row(control: Control) -> ControlRow:
    must = "must fail" if control.control is ControlKind.POSITIVE else "must agree"
    return ControlRow(
        ok=control.ok,
        kind=f"{control.control.value}: {must}",
        claim=control.claim,
        what=control.what,
        expected=one_line(control.expected, 200),
        observed=one_line(control.observed, 300),
        trials=plural(len(control.trials), "trial"),
    )
