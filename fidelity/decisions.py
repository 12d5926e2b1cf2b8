"""From trials to a finding: the one place where an outcome is decided.

Lower bound >= claim passes, upper bound < claim fails, anything else is inconclusive. Trials that
could not be measured never help a pass: they leave an `error`, unless the rest fails even if all
of them had been right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fidelity.evidence import Evidence, pair_up
from fidelity.opened import OpenedClass, classes_p, names_a_place, rest_is_healthy
from fidelity.paired import difference_bounds, inferiority_p, noninferiority_p
from fidelity.records import Finding, Trial
from fidelity.stats import (
    ALPHA,
    Rate,
    clopper_pearson_lower,
    clopper_pearson_upper,
    detectable_share,
    p_at_least,
    sentence_of_power,
    trials_needed,
    wilson,
)
from fidelity.words import Blame, Ladder, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a test asserts: its id, its suite (file stem without test_) and its sentence."""

    id: str
    suite: str
    title: str


def rate_finding(
    claim: Claim,
    trials: Sequence[Trial],
    threshold: float,
    *,
    title: str,
    effect_name: str = "rate",
    opened: Sequence[OpenedClass] = (),
    blame: Blame | None = None,
) -> Finding:
    """Decide "the rate of ok trials is >= threshold", and with it every class that was opened.

    With opened classes the claim's p-value is twice the smaller of the pool's own and of Holm's
    over the classes, so that looking at both costs nothing in error rate.
    """
    evidence = Evidence.of(trials)
    if not evidence.measured:
        return _unmeasured(claim, title, evidence)
    rate, best = evidence.rate, evidence.best_case
    bounds = _bounds(rate)
    p_pool = p_at_least(best.k_high, best.n, threshold)
    p_value = min(1.0, 2 * min(p_pool, classes_p(opened))) if opened else p_pool
    trouble = evidence.trouble or next(
        (c.evidence.trouble for c in opened if c.evidence.trouble), ""
    )
    open_still = [found for found in opened if not found.passes]
    if p_value < ALPHA:
        outcome = Outcome.FAIL
    elif trouble:
        outcome = Outcome.ERROR
    elif bounds[0] < threshold or open_still:
        outcome = Outcome.INCONCLUSIVE
    else:
        outcome = Outcome.PASS
    convicts = outcome is Outcome.FAIL and classes_p(opened) < ALPHA
    guilty = min(opened, key=lambda found: found.p_value) if convicts else None
    culprit = _culprit(evidence, guilty, rest_is_healthy(guilty, evidence), blame)
    return _finding(
        claim,
        title,
        outcome,
        _rate_reason(
            evidence,
            bounds=bounds,
            threshold=threshold,
            outcome=outcome,
            trouble=trouble,
            shown=guilty or next(iter(open_still), None),
        ),
        trials=[*trials, *(t for found in opened for t in found.trials)],
        blame=culprit[0] if outcome is Outcome.FAIL else None,
        ladder=culprit[1] if outcome is Outcome.FAIL else None,
        effect_name=effect_name,
        effect=rate.share,
        interval=bounds,
        threshold=threshold,
        k=rate.k_low,
        n=rate.n,
        p_value=p_value,
        minimum_detectable_effect=sentence_of_power(rate, threshold),
    )


def noninferior_finding(
    claim: Claim,
    trials: Sequence[Trial],
    control: Sequence[Trial],
    margin: float,
    *,
    title: str,
    effect_name: str = "difference of rates",
    blame: Blame = Blame.DEPLOYMENT,
) -> Finding:
    """Decide "this arm's rate is no more than `margin` below its control arm's", pair by pair.

    A fail is blamed on the deployment: the control arm shows that the model can.
    """
    paired = pair_up(trials, control)
    pairs = paired.cautious
    if pairs.n == 0:
        return _unmeasured(claim, title, Evidence.of(paired.trials))
    p_fail, p_pass = inferiority_p(paired.generous, margin), noninferiority_p(pairs, margin)
    if p_fail < ALPHA and not paired.unmeasured:
        outcome = Outcome.FAIL
    elif paired.unmeasured:
        outcome = Outcome.ERROR
    else:
        outcome = Outcome.PASS if p_pass < ALPHA else Outcome.INCONCLUSIVE
    bounds = difference_bounds(pairs)
    reason = (
        f"{pairs.lost} of {pairs.n} pairs were right in the control arm only and {pairs.gained} in"
        f" this arm only: difference {pairs.difference:+.3f} (95 % score bounds {bounds[0]:+.3f},"
        f" {bounds[1]:+.3f}; exact p {p_pass:.3g} for harmless), margin {margin:.2f}"
    )
    if paired.across_epochs:
        reason += f"; {paired.across_epochs} pairs across a server restart were left out"
    if outcome is Outcome.ERROR:
        reason += f"; {Evidence.of(paired.trials).trouble}: resume asks them again"
    ladder = Ladder.STRUCTURAL if Evidence.of(trials).mostly_lost_in_rendering else None
    return _finding(
        claim,
        title,
        outcome,
        reason,
        trials=list(paired.trials),
        blame=blame if outcome is Outcome.FAIL else None,
        ladder=ladder if outcome is Outcome.FAIL else None,
        effect_name=effect_name,
        effect=pairs.difference,
        interval=bounds,
        threshold=-margin,
        k=pairs.lost,
        n=pairs.n,
        p_value=p_fail,
        minimum_detectable_effect=(
            f"{pairs.n} pairs show damage to {detectable_share(pairs.n):.1%} of such requests at"
            f" least once with chance 95 %; a loss of {margin:.2f} or more passes with chance 5 %"
            " at most"
        ),
    )


def all_true_finding(
    claim: Claim,
    trials: Sequence[Trial],
    *,
    title: str,
    effect_name: str = "share that holds",
    blame: Blame = Blame.DEPLOYMENT,
    ladder: Ladder | None = None,
) -> Finding:
    """Decide "every trial holds": one measured counter-example refutes it, p = 0."""
    evidence = Evidence.of(trials)
    if not evidence.measured:
        return _unmeasured(claim, title, evidence)
    rate, misses = evidence.rate, evidence.misses
    if misses:
        outcome = Outcome.FAIL
        first = misses[0]
        said = first.exchanges[-1].text[:120] if first.exchanges else ""
        reason = (
            f"{len(misses)} of {len(evidence.measured)} trials broke the claim; the first:"
            f" {first.id} ({_where(first)}), expected {first.expected[:120]!r}, got {said!r}"
        )
    elif evidence.trouble:
        outcome, reason = Outcome.ERROR, f"{evidence.trouble}: resume asks them again"
    else:
        outcome, reason = Outcome.PASS, f"all {len(evidence.measured)} trials hold"
    return _finding(
        claim,
        title,
        outcome,
        reason,
        trials=list(trials),
        blame=blame if misses else None,
        ladder=ladder if misses else None,
        effect_name=effect_name,
        effect=rate.share,
        interval=_bounds(rate),
        threshold=1.0,
        k=rate.k_low,
        n=rate.n,
        p_value=0.0 if misses else 1.0,
        minimum_detectable_effect=(
            f"{rate.n} observations show damage to {detectable_share(rate.n):.1%} of such requests"
            " at least once with chance 95 %"
        ),
    )


_WORST_FIRST = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE)


def merge(claim: Claim, findings: Sequence[Finding], *, title: str = "") -> Finding:
    """Return one finding for several decisions of one claim: the worst outcome counts.

    The p-value is Bonferroni's over the parts; a fail that this does not bear is inconclusive.
    """
    if len(findings) == 1:
        return findings[0]
    parts = [finding.p_value for finding in findings if finding.p_value is not None]
    p_value = min(1.0, len(findings) * min(parts)) if parts else None
    order = {outcome: rank for rank, outcome in enumerate((*_WORST_FIRST, Outcome.PASS))}
    # of two equal outcomes the one with more evidence against the claim speaks
    worst = min(findings, key=lambda f: (order[f.outcome], 1.0 if f.p_value is None else f.p_value))
    outcome = worst.outcome
    if outcome is Outcome.FAIL and p_value is not None and p_value >= ALPHA:
        outcome = Outcome.INCONCLUSIVE
    fields: dict[str, Any] = {
        name: getattr(worst, name)
        for name in ("effect_name", "effect", "interval", "threshold", "k", "n")
    }
    return _finding(
        claim,
        title or "; ".join(finding.title for finding in findings),
        outcome,
        "; ".join(f"{finding.title}: {finding.reason}" for finding in findings),
        trials=(),
        trial_ids=tuple(dict.fromkeys(name for f in findings for name in f.trials)),
        blame=worst.blame if outcome is Outcome.FAIL else None,
        ladder=worst.ladder if outcome is Outcome.FAIL else None,
        p_value=p_value,
        minimum_detectable_effect="; ".join(f.minimum_detectable_effect for f in findings),
        paths=tuple(sorted({path for f in findings for path in f.paths})),
        **fields,
    )


def _culprit(
    evidence: Evidence, guilty: OpenedClass | None, healthy_rest: bool, given: Blame | None
) -> tuple[Blame, Ladder | None]:
    """A failure of recall alone says nothing of who is to blame; some of its forms do."""
    if evidence.mostly_lost_in_rendering:
        return Blame.DEPLOYMENT, Ladder.STRUCTURAL
    if guilty is not None and healthy_rest and names_a_place(guilty.name):
        # a model has no reason to forget at one residue of the length and nowhere else
        return Blame.DEPLOYMENT, Ladder.STRUCTURAL
    return given or Blame.UNKNOWN, None


def _rate_reason(
    evidence: Evidence,
    *,
    bounds: tuple[float, float],
    threshold: float,
    outcome: Outcome,
    trouble: str,
    shown: OpenedClass | None,
) -> str:
    rate = evidence.rate
    unit = "" if rate.n == rate.trials else f" clusters ({rate.trials} trials)"
    low, high = wilson(rate.k, rate.n)
    text = (
        f"{rate.k:g} of {rate.n}{unit} right ({rate.share:.3f}, Wilson 95 % {low:.3f} to"
        f" {high:.3f}; one-sided bounds {bounds[0]:.3f}, {bounds[1]:.3f}), claim >="
        f" {threshold:.2f}"
    )
    if shown is not None:
        text += f"; {shown.sentence}"
    if evidence.misses and outcome is not Outcome.PASS:
        first = evidence.misses[0]
        text += f"; first miss: trial {first.id} ({_where(first)})"
    if outcome is Outcome.ERROR:
        text += f"; {trouble}: resume asks them again"
    if outcome is Outcome.INCONCLUSIVE and bounds[0] < threshold:
        needed = trials_needed(threshold, misses=len(evidence.misses))
        text += (
            f"; at least {max(needed, rate.n + 1)} trials could prove it: a larger budget asks more"
        )
    return text


def _where(trial: Trial) -> str:
    axes = ", ".join(f"{name} {value}" for name, value in sorted(trial.cell.items()))
    parts = [axes or trial.key]
    if trial.score is not None:
        parts.append(str(trial.score))
    if trial.lost:
        parts.append(f"lost in {trial.lost}")
    return ", ".join(parts)


def _bounds(rate: Rate) -> tuple[float, float]:
    return (
        clopper_pearson_lower(rate.k_low, rate.n),
        clopper_pearson_upper(rate.k_high, rate.n),
    )


def _unmeasured(claim: Claim, title: str, evidence: Evidence) -> Finding:
    reason = evidence.trouble or "no trial was asked"
    held = [*evidence.measured, *evidence.unmeasured]
    return _finding(claim, title, Outcome.ERROR, reason, trials=held)


def _finding(
    claim: Claim,
    title: str,
    outcome: Outcome,
    reason: str,
    *,
    trials: Sequence[Trial],
    trial_ids: tuple[str, ...] = (),
    paths: tuple[str, ...] = (),
    **fields: Any,
) -> Finding:
    return Finding(
        claim=claim.id,
        suite=claim.suite,
        title=title,
        outcome=outcome,
        reason=reason,
        trials=trial_ids or tuple(trial.id for trial in trials),
        paths=paths or tuple(sorted({path for trial in trials for path in trial.paths})),
        provisional=outcome is Outcome.FAIL,
        **fields,
    )
