"""From the findings of a run to its verdict: Holm, suites whose control is blind, blame, exit code.

A weak healthy model is not an unfaithful deployment: a run is unfaithful only when some failed
claim speaks against the deployment itself. Nor is one whose API breaks a promise while the context
is read: it does not conform, which fails the run and is said beside the verdict.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from fidelity.records import Control, Finding
from fidelity.statistics.holm import Step, holm, lines
from fidelity.verdicts.attribution import attributed
from fidelity.verdicts.parts import without_fails
from fidelity.words import Blame, Concern, ControlKind, Outcome, RunVerdict

EXIT_FAIL = 1
EXIT_UNDECIDED = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Findings after Holm and the controls, in the planned order, and Holm's printed lines."""

    findings: tuple[Finding, ...]
    changed: tuple[Finding, ...]
    """Those that differ from what the journal holds."""
    holm: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the run as a whole comes to."""

    verdict: RunVerdict
    blame: Blame | None
    sentence: str
    exit_code: int
    counts: dict[str, int]


def resolve(
    findings: Mapping[str, Finding],
    controls: Iterable[Control],
    planned: Sequence[str],
    *,
    longest_miss: Mapping[str, int] | None = None,
) -> Resolution:
    """Settle provisional findings: Holm over the fail decisions, positive controls, then blame.

    Args:
        findings: the last one of each claim.
        controls: of the whole run.
        planned: ids of all claims: Holm's family.
        longest_miss: claim -> longest prompt that it missed, in tokens.
    """
    fails = {
        name: finding.p_value or 0.0
        for name, finding in findings.items()
        if finding.outcome is Outcome.FAIL
    }
    family = max(len(planned), len(findings))
    steps = holm(fails, family=family)
    by_name = {step.name: step for step in steps}
    controls = list(controls)
    blind = _blind_suites(controls)
    sighted = _sighted_claims(controls)
    order = {name: rank for rank, name in enumerate(planned)}
    names = sorted(findings, key=lambda claim: order.get(claim, len(order)))
    settled = attributed(
        [
            _settle(findings[name], by_name.get(name), family, {} if name in sighted else blind)
            for name in names
        ],
        longest_miss=longest_miss,
    )
    changed = [final for final in settled if final != findings[final.claim]]
    return Resolution(
        findings=tuple(settled), changed=tuple(changed), holm=lines(steps, family=family)
    )


def _blind_suites(controls: Iterable[Control]) -> dict[str, Control]:
    return {
        control.suite: control
        for control in controls
        if control.control is ControlKind.POSITIVE and not control.ok
    }


def _sighted_claims(controls: Iterable[Control]) -> set[str]:
    """Return the claims whose own positive controls all failed, as they must.

    They have shown that they see damage; a blind control of another claim says nothing of them.
    """
    own: dict[str, bool] = {}
    for control in controls:
        if control.control is ControlKind.POSITIVE:
            own[control.claim] = own.get(control.claim, True) and control.ok
    return {claim for claim, ok in own.items() if ok}


def _settle(
    finding: Finding, step: Step | None, family: int, blind: Mapping[str, Control]
) -> Finding:
    replace = msgspec.structs.replace
    if step is not None and not step.rejected:
        reason = (
            f"{finding.reason}; below its claim taken alone, but Holm over {family} planned claims"
            f" adjusts p to {step.adjusted:.3g}: a larger budget decides it"
        )
        return replace(
            finding,
            at="",
            outcome=Outcome.INCONCLUSIVE,
            reason=reason,
            blame=None,
            ladder=None,
            parts=without_fails(finding.parts),
            provisional=False,
        )
    if step is not None:
        return replace(finding, at="", provisional=False) if finding.provisional else finding
    control = blind.get(finding.suite)
    if finding.outcome is Outcome.PASS and control is not None:
        reason = (
            f"the suite cannot see damage: its positive control ({control.what}) must"
            f" {control.expected} and was {control.observed}; without it: {finding.reason}"
        )
        return replace(finding, at="", outcome=Outcome.INCONCLUSIVE, reason=reason)
    return finding


def judge(
    resolution: Resolution,
    planned: Sequence[str],
    *,
    interrupted: bool = False,
    unmet: Sequence[str] = (),
) -> Judgement:
    """Return the verdict of a run, in one sentence, with its exit code.

    Args:
        resolution: the settled findings.
        planned: ids of all claims of the run.
        interrupted: the run was stopped; what there is counts, and is marked.
        unmet: capabilities that the deployment promises and that are absent or unproven: with a
            cache or metrics silently off, no server is faithful.
    """
    findings = resolution.findings
    counts = {str(outcome): 0 for outcome in Outcome}
    counts.update(Counter(str(finding.outcome) for finding in findings))
    known = {finding.claim for finding in findings}
    counts["planned"] = max(len(planned), len(findings))
    counts["not_run"] = sum(name not in known for name in planned)
    fails = [finding for finding in findings if finding.outcome is Outcome.FAIL]
    reading = [finding for finding in fails if finding.concern is Concern.READING]
    counts["not_conforming"] = len(fails) - len(reading)
    counts["unmet_expectations"] = len(unmet)
    blame = _blame(reading or fails)
    verdict = _verdict(counts, _blame(reading))
    sentence = _sentence(verdict, blame, counts, findings)
    if unmet:
        sentence += f"; promised by the deployment and absent or unproven: {', '.join(unmet)}"
    if interrupted:
        done = counts["planned"] - counts["not_run"]
        sentence = f"interrupted after {done} of {counts['planned']} claims; {sentence}"
    code = EXIT_FAIL if fails else 0 if verdict is RunVerdict.FAITHFUL else EXIT_UNDECIDED
    return Judgement(
        verdict=verdict,
        blame=blame,
        sentence=sentence,
        exit_code=EXIT_INTERRUPTED if interrupted else code,
        counts=counts,
    )


def _blame(fails: Sequence[Finding]) -> Blame | None:
    blames = {finding.blame or Blame.UNKNOWN for finding in fails}
    for known in (Blame.DEPLOYMENT, Blame.UNKNOWN, Blame.MODEL_LIMIT):
        if known in blames:
            return known
    return None


def _verdict(counts: Mapping[str, int], blame: Blame | None) -> RunVerdict:
    if blame is Blame.DEPLOYMENT:
        return RunVerdict.UNFAITHFUL
    undone = counts["error"] + counts["inconclusive"] + counts["not_run"]
    if blame is not None or undone or counts["unmet_expectations"] or not counts["pass"]:
        return RunVerdict.UNDECIDED
    return RunVerdict.FAITHFUL


def _sentence(
    verdict: RunVerdict,
    blame: Blame | None,
    counts: Mapping[str, int],
    findings: Sequence[Finding],
) -> str:
    total = counts["planned"]
    head = f"{verdict}: "
    api_only = counts["not_conforming"] == counts["fail"]
    if verdict is RunVerdict.FAITHFUL:
        head = f"faithful on {counts['pass']} of {total} claims"
    elif counts["fail"] and not api_only:
        head += f"{counts['fail']} of {total} claims fail, {_BLAME_WORDS[blame or Blame.UNKNOWN]}"
    else:
        head += f"{counts['pass']} of {total} claims hold, " + _none_fails(counts)
    parts = [head]
    if counts["not_conforming"]:
        parts.append(_conformance_words(findings, counts["not_conforming"], alone=api_only))
    if counts["error"]:
        first = next(f for f in findings if f.outcome is Outcome.ERROR)
        parts.append(f"{counts['error']} could not be measured (first: {first.reason})")
    if counts["inconclusive"]:
        parts.append(f"{counts['inconclusive']} inconclusive")
    if counts["not_run"]:
        parts.append(f"{counts['not_run']} not run")
    if counts["not_applicable"]:
        parts.append(f"{counts['not_applicable']} not measurable here: {_why_not(findings)}")
    return "; ".join(parts)


def _none_fails(counts: Mapping[str, int]) -> str:
    return "none about reading fails" if counts["not_conforming"] else "none fails"


def _conformance_words(findings: Sequence[Finding], count: int, *, alone: bool) -> str:
    if not alone:
        return f"{count} of them about the API alone, where the deployment is to blame"
    first = next(
        f for f in findings if f.outcome is Outcome.FAIL and f.concern is Concern.CONFORMANCE
    )
    fail = "claim about the API fails" if count == 1 else "claims about the API fail"
    return (
        f"it does not conform: {count} {fail}, and the deployment is to blame"
        f" (first: {first.title})"
    )


_BLAME_WORDS = {
    Blame.DEPLOYMENT: "and the deployment is to blame",
    Blame.MODEL_LIMIT: "which is the limit of the model: nothing speaks against the deployment",
    Blame.UNKNOWN: (
        "with nobody to blame yet: recall alone does not tell a weak model from a damaged"
        " deployment, a known good one beside it (--golden, or fidelity diff) does"
    ),
}


def _why_not(findings: Sequence[Finding]) -> str:
    reasons = Counter(f.reason for f in findings if f.outcome is Outcome.NOT_APPLICABLE)
    return ", ".join(
        reason if count == 1 else f"{reason} ({count} claims)" for reason, count in reasons.items()
    )
