"""Twins: which paths were held against each other, whether they were taken, and where arms part."""

import math
from dataclasses import dataclass
from typing import Any

from fidelity.records import Finding
from fidelity.words import Outcome
from reports.view_journal import Journal
from reports.view_outcome import OUTCOMES, Badge
from reports.view_text import one_line, plural

PREFIX = "twins_"
_WIDTH, _HEIGHT = 150, 34
_LEAST_NATS, _MOST_NATS = 1e-7, 30.0
"""Ends of the logarithmic scale of the drawings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a profile; `beyond` when rounding cannot explain it."""

    x: float
    y: float
    width: float
    height: float
    beyond: bool
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A small profile: largest difference along one axis, on a logarithmic scale.

    `bound_y` is where rounding ends; None when that is not drawn.
    """

    name: str
    bars: tuple[Bar, ...]
    bound_y: float | None
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRow:
    """One pair of paths."""

    name: str
    claim: str
    badge: Badge
    proof: str
    null: str
    difference: str
    rung: str
    reason: str
    drawings: tuple[Drawing, ...]
    nowhere: str
    """In place of drawings where every number is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """All twins of the run, those that part first; `exact`: how many agree to the bit."""

    rows: tuple[TwinRow, ...]
    summary: str
    left_out: str


def twins_of(journal: Journal) -> Twins | None:
    """Return the twins of a run, None where no claim of it is one."""
    findings = [f for f in journal.findings if f.suite.startswith(PREFIX)]
    left_out = journal.manifest.left_out if journal.manifest else {}
    needs = {need for claim, need in left_out.items() if claim.startswith(PREFIX)}
    if not findings and not needs:
        return None
    order = list(OUTCOMES)
    ranked = sorted(findings, key=lambda finding: order.index(finding.outcome))
    exact = sum((f.profile or {}).get("rung") == "exact" for f in findings)
    agree = sum(f.outcome is Outcome.PASS for f in findings)
    return Twins(
        rows=tuple(_row(finding) for finding in ranked),
        summary=f"{agree} of {plural(len(findings), 'pair')} of paths agree, {exact} to the bit"
        if findings
        else "",
        left_out=f"No part of this run: a twin that needs {'; '.join(sorted(needs))}."
        if needs
        else "",
    )


def _row(finding: Finding) -> TwinRow:
    profile = finding.profile or {}
    passed = finding.outcome is Outcome.PASS
    return TwinRow(
        name=str(profile.get("twin") or finding.claim.partition("/")[2].replace("_", " ")),
        claim=finding.claim,
        badge=OUTCOMES[finding.outcome],
        proof=_proof(profile),
        null=_nats(profile.get("null_nats")),
        difference=_nats(profile.get("nats")),
        rung=str(profile.get("rung") or "—"),
        reason="" if passed else one_line(finding.reason, 400),
        drawings=_drawings(profile) if _differs(profile) else (),
        nowhere="" if _differs(profile) or not profile.get("prompts") else "nowhere",
    )


def _differs(profile: dict[str, Any]) -> bool:
    parted = any(row[1] for row in profile.get("residue_16", {}).values())
    return bool(profile.get("nats")) or parted


def _proof(profile: dict[str, Any]) -> str:
    if not profile.get("prompts"):
        return "not taken"
    paths = ", ".join(profile["paths"]) or "path"
    return f"{paths}: {profile['proven']} of {plural(profile['prompts'], 'prompt')}"


def _nats(value: float | None) -> str:
    if value is None:
        return "—"
    return "0" if value == 0 else f"{value:.2g}"


def _drawings(profile: dict[str, Any]) -> tuple[Drawing, ...]:
    bound = float(profile.get("bound_nats") or 0.0)
    positions = [
        (f"token {at} of the answer: {_nats(gap)} nats", gap, gap > bound)
        for at, gap in enumerate(profile["position"])
    ]
    residues = [
        (
            f"length {value} modulo 16: {parted:.0f} of {n:.0f} part, at most {_nats(gap)} nats",
            gap,
            parted > 0,
        )
        for value, (n, parted, gap) in profile["residue_16"].items()
    ]
    depths = [
        (f"fact at depth {value}: {parted:.0f} of {n:.0f} part", gap, parted > 0)
        for value, (n, parted, gap) in profile["depth_frac"].items()
    ]
    return (
        _drawing("position in the answer", positions, bound),
        _drawing("prompt length modulo 16", residues, bound),
        _drawing("depth", depths, bound),
    )


def _drawing(name: str, values: list[tuple[str, float, bool]], bound: float) -> Drawing:
    step = _WIDTH / max(1, len(values))
    return Drawing(
        name=name,
        bars=tuple(
            Bar(
                x=round(place * step, 1),
                y=round(_HEIGHT - _height(nats), 1),
                width=round(max(0.8, step - 0.6), 1),
                height=round(_height(nats), 1),
                beyond=beyond,
                title=title,
            )
            for place, (title, nats, beyond) in enumerate(values)
        ),
        bound_y=round(_HEIGHT - _height(bound), 1) if bound else None,
    )


def _height(nats: float) -> float:
    """Return how high a difference stands: a hair for none, the whole for `_MOST_NATS`."""
    if nats <= _LEAST_NATS:
        return 1.0
    share = math.log(min(nats, _MOST_NATS) / _LEAST_NATS) / math.log(_MOST_NATS / _LEAST_NATS)
    return 1.0 + share * (_HEIGHT - 1)
