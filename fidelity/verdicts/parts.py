"""A claim that is decided in several parts: which part speaks for it, and how they add up."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fidelity.records import Finding, Part
from fidelity.statistics.stats import ALPHA
from fidelity.words import Blame, Concern, Ladder, Outcome

if TYPE_CHECKING:
    from fidelity.verdicts.decisions import Claim

WORST_FIRST = (
    Outcome.FAIL,
    Outcome.ERROR,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_APPLICABLE,
    Outcome.PASS,
)
_BLAMED_FIRST = (Blame.DEPLOYMENT, Blame.UNKNOWN, Blame.MODEL_LIMIT, None)
_FIGURES = ("effect_name", "effect", "interval", "threshold", "k", "n")
_VERBS = {
    Outcome.FAIL: ("fails", "fail"),
    Outcome.ERROR: ("could not be measured", "could not be measured"),
    Outcome.INCONCLUSIVE: ("is inconclusive", "are inconclusive"),
    Outcome.NOT_APPLICABLE: ("is not applicable", "are not applicable"),
    Outcome.PASS: ("holds", "hold"),
}


def worst_of(parts: Sequence[Part]) -> Part:
    """Return the part that speaks for its claim.

    Of equal outcomes the one that tells most of who is to blame, then the one with most against
    the claim.
    """
    return min(parts, key=_badness)


def _badness(part: Part) -> tuple[int, int, float]:
    p_value = part.p_value if part.outcome is not Outcome.PASS else None
    blamed = _BLAMED_FIRST.index(part.blame)
    return WORST_FIRST.index(part.outcome), blamed, 1.0 if p_value is None else p_value


def badness(finding: Finding) -> tuple[int, int, bool]:
    """Return the key by which claims are told, worst first; those about the API come last."""
    rung = list(Ladder).index(finding.ladder) if finding.ladder else -1
    return WORST_FIRST.index(finding.outcome), -rung, finding.concern is Concern.CONFORMANCE


def figures_of(part: Part) -> dict[str, Any]:
    """Return the figures of a part as fields of a finding."""
    return {name: getattr(part, name) for name in _FIGURES}


def reason_of(parts: Sequence[Part], *, title: str) -> str:
    """Return why a claim is what its parts make it: the worst in words, the others counted.

    Args:
        parts: of the claim, one at least.
        title: of the claim; a part of that title is not named again.
    """
    worst = worst_of(parts)
    named = "" if worst.title == title else f"{worst.title}: "
    others = [part.outcome for part in parts if part is not worst]
    return f"{named}{worst.reason}" + (f"; {_tally(others)}" if others else "")


def _tally(outcomes: Sequence[Outcome]) -> str:
    counts = Counter(outcomes)
    told = [
        f"{counts[outcome]} {_VERBS[outcome][counts[outcome] > 1]}"
        for outcome in WORST_FIRST
        if counts[outcome]
    ]
    parts = "the other part" if len(outcomes) == 1 else f"of {len(outcomes)} other parts"
    if len(counts) > 1:
        return f"{parts} {', '.join(told)}"
    verb = _VERBS[outcomes[0]][len(outcomes) > 1]
    return f"the other part {verb}" if len(outcomes) == 1 else f"all {len(outcomes)} others {verb}"


def merge(claim: "Claim", findings: Sequence[Finding], *, title: str = "") -> Finding:
    """Return one finding for several decisions of one claim: the worst outcome counts.

    Each decision pays for the others (Bonferroni): a fail that this does not bear is inconclusive.
    Without a title the claim's own sentence is taken.
    """
    if len(findings) == 1:
        return findings[0]
    size = len(findings)
    corrected = [_corrected(finding, size) for finding in findings]
    once: dict[tuple[str, str], Part] = {}  # an opened class is a part of every decision
    for part in (part for finding in corrected for part in _parts(finding)):
        once.setdefault((part.title, part.reason), part)
    parts = tuple(once.values())
    worst = worst_of(parts)
    fails = [finding for finding in corrected if finding.outcome is Outcome.FAIL]
    p_values = [f.p_value for f in fails or findings if f.p_value is not None]
    title = title or _titled(claim, findings)
    seen = dict.fromkeys(f.minimum_detectable_effect for f in findings)
    return Finding(
        claim=claim.id,
        suite=claim.suite,
        title=title,
        outcome=worst.outcome,
        reason=reason_of(parts, title=title),
        ladder=_worst_ladder(findings if worst.outcome is Outcome.PASS else fails),
        blame=_blame(fails),
        p_value=min(1.0, size * min(p_values)) if p_values else None,
        minimum_detectable_effect="; ".join(text for text in seen if text),
        trials=tuple(dict.fromkeys(name for f in findings for name in f.trials)),
        paths=tuple(sorted({path for f in findings for path in f.paths})),
        parts=parts,
        concern=_concern(fails),
        provisional=worst.outcome is Outcome.FAIL,
        **figures_of(worst),
    )


def _concern(fails: Sequence[Finding]) -> Concern:
    """Return what failed: reading, unless every failure is one of the API alone."""
    told_alone = bool(fails) and all(f.concern is Concern.CONFORMANCE for f in fails)
    return Concern.CONFORMANCE if told_alone else Concern.READING


def without_fails(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts of a claim whose fail did not survive a correction."""
    return tuple(
        msgspec.structs.replace(part, outcome=Outcome.INCONCLUSIVE, blame=None)
        if part.outcome is Outcome.FAIL
        else part
        for part in parts
    )


def _corrected(finding: Finding, size: int) -> Finding:
    p_value = finding.p_value
    if finding.outcome is not Outcome.FAIL or p_value is None or size * p_value < ALPHA:
        return finding
    return msgspec.structs.replace(
        finding,
        outcome=Outcome.INCONCLUSIVE,
        reason=f"{finding.reason}; below its claim taken alone, but not as one of {size} parts"
        f" (p {min(1.0, size * p_value):.3g}): a larger budget decides it",
        blame=None,
        ladder=None,
        parts=without_fails(finding.parts),
    )


def _parts(finding: Finding) -> tuple[Part, ...]:
    if finding.parts:
        return finding.parts
    whole = Part(
        title=finding.title,
        outcome=finding.outcome,
        reason=finding.reason,
        blame=finding.blame,
        p_value=finding.p_value,
        effect_name=finding.effect_name,
        effect=finding.effect,
        interval=finding.interval,
        threshold=finding.threshold,
        k=finding.k,
        n=finding.n,
    )
    return (whole,)


def _titled(claim: "Claim", findings: Sequence[Finding]) -> str:
    if not claim.title:
        return "; ".join(finding.title for finding in findings)
    _, bracket, parameter = claim.id.partition("[")
    return f"{claim.title} {bracket}{parameter}" if bracket else claim.title


def _blame(fails: Sequence[Finding]) -> Blame | None:
    return min((f.blame for f in fails), key=_BLAMED_FIRST.index, default=None)


def _worst_ladder(fails: Sequence[Finding]) -> Ladder | None:
    rungs = [finding.ladder for finding in fails if finding.ladder is not None]
    return max(rungs, key=list(Ladder).index, default=None)
