"""Whom a failure of recall alone is to be blamed on, once the whole run has spoken.

An answer alone does not tell a weak model from a damaged deployment. A twin or a golden that fails
does: a model answers two paths alike, and on another server as on this one. A golden that agrees
clears the deployment as far as it looked: at cold prompts up to a length, at what it scores and at
what it continues. Clean twins clear paths only: a fault that damages every path alike is in both
arms, so they leave the blame open.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fidelity.records import Finding, Part, Trial
from fidelity.verdicts.axes import prompt_length
from fidelity.words import Blame, Concern, Oracle, Outcome

_TWINS = ("twins", "stateful")
_GOLDEN = "golden"
_PATHS = ("prefill", "decode")
"""Both of which a golden must have looked at: recall is read on the one and said on the other."""
_LEAST_TEXTS = 2
"""Of a length that counts as looked at."""
_UNREACHED = sys.maxsize


def oracle_of(suite: str) -> Oracle:
    """Return what decides in a suite, by its stem."""
    if suite.startswith(_GOLDEN):
        return Oracle.GOLDEN
    return Oracle.TWIN if suite.startswith(_TWINS) else Oracle.ANSWER


def attributed(
    findings: Sequence[Finding], *, longest_miss: Mapping[str, int] | None = None
) -> list[Finding]:
    """Return the findings with the blame of each failed recall as far as the run tells it.

    Args:
        findings: settled, of the whole run.
        longest_miss: claim -> longest prompt that it missed, in tokens: a golden that looked at
            shorter ones only clears nothing.
    """
    accuser = _accuser(findings)
    reached = _golden_reach(findings)
    missed = longest_miss or {}
    return [_blamed(f, accuser, reached, missed.get(f.claim, 0)) for f in findings]


def longest_miss(trials: Iterable[Trial]) -> dict[str, int]:
    """Return claim -> longest prompt of a missed trial, in tokens as the server counted them.

    A miss with tokens out of a cache took a path that no golden takes: longer than any text.
    """
    found: dict[str, int] = {}
    for trial in trials:
        if trial.ok is False:
            cached = any(exchange.cached_tokens for exchange in trial.exchanges)
            tokens = _UNREACHED if cached else prompt_length(trial) or 0
            found[trial.claim] = max(found.get(trial.claim, 0), tokens)
    return found


def _open(finding: Finding) -> bool:
    return (
        finding.outcome is Outcome.FAIL
        and finding.blame in {None, Blame.UNKNOWN}
        and finding.concern is Concern.READING
        and oracle_of(finding.suite) is Oracle.ANSWER
    )


def _accuser(findings: Iterable[Finding]) -> Finding | None:
    """Return a failed twin or golden that blames the deployment."""
    for finding in findings:
        reads = finding.concern is Concern.READING
        speaks = reads and oracle_of(finding.suite) is not Oracle.ANSWER
        if speaks and finding.outcome is Outcome.FAIL and finding.blame is Blame.DEPLOYMENT:
            return finding
    return None


def _golden_reach(findings: Iterable[Finding]) -> int:
    """Return up to which length every golden claim agrees, in tokens; 0 unless on both paths."""
    golden = [f for f in findings if oracle_of(f.suite) is Oracle.GOLDEN]
    if any(f.outcome is not Outcome.PASS for f in golden):
        return 0
    profiles = [f.profile for f in golden if f.profile and "lengths" in f.profile]
    if any(path not in {profile.get("path") for profile in profiles} for path in _PATHS):
        return 0
    return min(_longest(profile["lengths"]) for profile in profiles)


def _longest(rows: Sequence[Mapping[str, int]]) -> int:
    looked_at = [row["length_tokens"] for row in rows if row.get("texts", 0) >= _LEAST_TEXTS]
    return max(looked_at, default=0)


def _blamed(finding: Finding, accuser: Finding | None, reached: int, missed: int) -> Finding:
    if not _open(finding):
        return finding
    if accuser is not None:
        return _with(
            finding,
            Blame.DEPLOYMENT,
            f"the deployment is to blame: {accuser.claim} fails too, which no model can do",
        )
    if reached and missed <= reached:
        return _with(
            finding,
            Blame.MODEL_LIMIT,
            f"the model is to blame: the golden says the same up to {reached:,} tokens",
        )
    return finding


def _with(finding: Finding, blame: Blame, why: str) -> Finding:
    parts = tuple(_part(part, blame) for part in finding.parts)
    reason = finding.reason if why in finding.reason else f"{finding.reason}; {why}"
    return msgspec.structs.replace(finding, at="", blame=blame, reason=reason, parts=parts)


def _part(part: Part, blame: Blame) -> Part:
    if part.outcome is Outcome.FAIL and part.blame in {None, Blame.UNKNOWN}:
        return msgspec.structs.replace(part, blame=blame)
    return part
