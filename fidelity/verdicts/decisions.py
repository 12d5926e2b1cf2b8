"""From trials to a finding: the one place where an outcome is decided.

Lower bound >= claim passes, upper bound < claim fails, anything else is inconclusive. Trials that
could not be measured never help a pass: they leave an `error`, unless the rest fails even if all
of them had been right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fidelity.records import Finding, Part, Trial
from fidelity.statistics.holm import holm
from fidelity.statistics.paired import (
    difference_bounds,
    inferiority_p,
    noninferiority_p,
    sentence_of_pairs,
)
from fidelity.statistics.stats import (
    ALPHA,
    Rate,
    clopper_pearson_lower,
    clopper_pearson_upper,
    detectable_share,
    p_at_least,
    sentence_of_power,
    trials_needed,
)
from fidelity.verdicts.axes import class_words
from fidelity.verdicts.evidence import Evidence, PairedEvidence, pair_up
from fidelity.verdicts.misses import sentence_of_misses
from fidelity.verdicts.opened import OpenedClass, classes_p, names_a_place, rest_is_healthy
from fidelity.verdicts.parts import figures_of, reason_of, worst_of
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
    pool = _pool_part(
        evidence, threshold, title=title, effect_name=effect_name, blame=blame, opened=opened
    )
    parts = (pool, *_class_parts(evidence, opened, effect_name=effect_name, blame=blame))
    worst = worst_of(parts)
    convicts = worst.outcome is Outcome.FAIL and classes_p(opened) < ALPHA
    guilty = min(opened, key=lambda found: found.p_value) if convicts else None
    culprit = _culprit(evidence, guilty, blame)
    p_pool = 1.0 if pool.p_value is None else pool.p_value
    return _finding(
        claim,
        title,
        worst.outcome,
        reason_of(parts, title=title),
        trials=[*trials, *(t for found in opened for t in found.trials)],
        blame=culprit[0] if worst.outcome is Outcome.FAIL else None,
        ladder=culprit[1] if worst.outcome is Outcome.FAIL else None,
        p_value=min(1.0, 2 * min(p_pool, classes_p(opened))) if opened else p_pool,
        minimum_detectable_effect=sentence_of_power(evidence.rate, threshold),
        parts=parts if opened else (),
        **figures_of(worst),
    )


def _pool_part(
    evidence: Evidence,
    threshold: float,
    *,
    title: str,
    effect_name: str,
    blame: Blame | None,
    opened: Sequence[OpenedClass],
) -> Part:
    """Decide the rate of all trials together; beside opened classes it pays for two looks."""
    rate, best, bounds = evidence.rate, evidence.best_case, _bounds(evidence.rate)
    p_value = p_at_least(best.k_high, best.n, threshold)
    if (2 if opened else 1) * p_value < ALPHA:
        outcome = Outcome.FAIL
    elif evidence.trouble:
        outcome = Outcome.ERROR
    else:
        outcome = Outcome.PASS if bounds[0] >= threshold else Outcome.INCONCLUSIVE
    reason = _rate_words(rate, bounds, threshold)
    misses = "" if outcome is Outcome.PASS else sentence_of_misses(evidence.measured)
    reason += f"; {misses}" if misses else ""
    if outcome is Outcome.ERROR:
        reason += f"; {evidence.trouble}: resume asks them again"
    if outcome is Outcome.INCONCLUSIVE:
        needed = max(trials_needed(threshold, misses=len(evidence.misses)), rate.n + 1)
        reason += f"; at least {needed} trials could prove it: a larger budget asks more"
    return Part(
        title=title,
        outcome=outcome,
        reason=reason,
        blame=_culprit(evidence, None, blame)[0] if outcome is Outcome.FAIL else None,
        effect_name=effect_name,
        effect=rate.share,
        interval=bounds,
        threshold=threshold,
        k=rate.k_low,
        n=rate.n,
        p_value=p_value,
    )


def _class_parts(
    evidence: Evidence,
    opened: Sequence[OpenedClass],
    *,
    effect_name: str,
    blame: Blame | None,
) -> list[Part]:
    """Decide each opened class, corrected by Holm over all of them and for the pool beside."""
    adjusted = {step.name: step.adjusted for step in holm({c.name: c.p_value for c in opened})}
    parts = []
    for found in (found for found in opened if found.trials):
        rate = found.evidence.rate
        if 2 * adjusted[found.name] < ALPHA:
            outcome = Outcome.FAIL
        elif found.evidence.trouble:
            outcome = Outcome.ERROR
        else:
            outcome = Outcome.PASS if found.passes else Outcome.INCONCLUSIVE
        fails = outcome is Outcome.FAIL
        parts.append(
            Part(
                title=f"{effect_name} >= {found.threshold:.2f} at {class_words(found.name)}",
                outcome=outcome,
                reason=_class_words(found, outcome),
                blame=_culprit(evidence, found, blame)[0] if fails else None,
                effect_name=effect_name,
                effect=rate.share if rate.n else None,
                interval=_bounds(rate) if rate.n else None,
                threshold=found.threshold,
                k=rate.k_low if rate.n else None,
                n=rate.n or None,
                p_value=found.p_value,
            )
        )
    unasked = sum(not found.trials for found in opened)
    if unasked:
        what = "1 other class" if unasked == 1 else f"{unasked} other classes"
        parts.append(
            Part(
                title=f"{what} with a miss, not asked again",
                outcome=Outcome.INCONCLUSIVE,
                reason="what was asked decides the claim",
            )
        )
    return parts


def _class_words(found: OpenedClass, outcome: Outcome) -> str:
    rate = found.evidence.rate
    if rate.n == 0:
        return found.evidence.trouble
    words = _rate_words(rate, _bounds(rate), found.threshold, what="fresh probes right")
    if outcome is not Outcome.PASS:
        misses = sentence_of_misses(found.evidence.measured)
        words += f"; {misses}" if misses else ""
    trouble = found.evidence.trouble
    return f"{words}; {trouble}: resume asks them again" if outcome is Outcome.ERROR else words


def noninferior_finding(
    claim: Claim,
    trials: Sequence[Trial],
    control: Sequence[Trial],
    margin: float,
    *,
    title: str,
    effect_name: str = "difference of rates",
    blame: Blame = Blame.DEPLOYMENT,
    opened: Sequence[OpenedClass] = (),
) -> Finding:
    """Decide "this arm's rate is no more than `margin` below its control arm's", pair by pair.

    A fail of the pairs is blamed on the deployment: the control arm shows that the model can. The
    classes that this arm's misses opened are decided with it, as `rate_finding` does.
    """
    paired = pair_up(trials, control)
    if paired.cautious.n == 0:
        return _unmeasured(claim, title, Evidence.of(paired.trials))
    pool = _pairs_part(
        paired, trials, margin, title=title, effect_name=effect_name, blame=blame, opened=opened
    )
    evidence = Evidence.of(trials)
    parts = (pool, *_class_parts(evidence, opened, effect_name="recall", blame=None))
    worst = worst_of(parts)
    fails = worst.outcome is Outcome.FAIL
    lost = Ladder.STRUCTURAL if evidence.mostly_lost_in_rendering else None
    p_pool = 1.0 if pool.p_value is None else pool.p_value
    return _finding(
        claim,
        title,
        worst.outcome,
        reason_of(parts, title=title),
        trials=[*paired.trials, *(t for found in opened for t in found.trials)],
        blame=worst.blame if fails else None,
        ladder=lost if fails else None,
        p_value=min(1.0, 2 * min(p_pool, classes_p(opened))) if opened else p_pool,
        minimum_detectable_effect=sentence_of_pairs(paired.cautious.n, margin),
        parts=parts if opened else (),
        **figures_of(worst),
    )


def _pairs_part(
    paired: PairedEvidence,
    trials: Sequence[Trial],
    margin: float,
    *,
    title: str,
    effect_name: str,
    blame: Blame,
    opened: Sequence[OpenedClass],
) -> Part:
    """Decide all pairs together; beside opened classes it pays for two looks."""
    pairs = paired.cautious
    # a fail stands even if every pair that is missing had spoken for this arm
    p_fail, p_pass = inferiority_p(paired.generous, margin), noninferiority_p(pairs, margin)
    if (2 if opened else 1) * p_fail < ALPHA:
        outcome = Outcome.FAIL
    elif paired.unmeasured:
        outcome = Outcome.ERROR
    else:
        outcome = Outcome.PASS if p_pass < ALPHA else Outcome.INCONCLUSIVE
    lost = Evidence.of(trials).mostly_lost_in_rendering
    bounds = difference_bounds(pairs)
    reason = (
        f"{pairs.lost} of {pairs.n} pairs were right in the control arm only and {pairs.gained} in"
        f" this arm only: difference {pairs.difference:+.3f} (95 % bounds {bounds[0]:+.3f} to"
        f" {bounds[1]:+.3f}) against a margin of {margin:.2f}"
    )
    if paired.across_epochs:
        reason += f"; {paired.across_epochs} pairs across a server restart were left out"
    misses = "" if outcome is Outcome.PASS else sentence_of_misses(trials)
    reason += f"; {misses}" if misses else ""
    if outcome is Outcome.ERROR:
        reason += f"; {Evidence.of(paired.trials).trouble}: resume asks them again"
    if outcome is Outcome.INCONCLUSIVE:
        reason += f"; harmless only at p {p_pass:.3g}: a larger budget asks more pairs"
    return Part(
        title=title,
        outcome=outcome,
        reason=reason,
        blame=(Blame.DEPLOYMENT if lost else blame) if outcome is Outcome.FAIL else None,
        effect_name=effect_name,
        effect=pairs.difference,
        interval=bounds,
        threshold=-margin,
        k=pairs.lost,
        n=pairs.n,
        p_value=p_fail,
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
        reason = (
            f"{len(misses)} of {len(evidence.measured)} trials broke the claim;"
            f" {sentence_of_misses(evidence.measured)}"
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


def undecided_finding(claim: Claim, trials: Sequence[Trial], *, title: str, reason: str) -> Finding:
    """Say that these trials cannot tell whose fault their misses are: no pass, and no fail."""
    rate = Evidence.of(trials).rate
    return _finding(
        claim,
        title,
        Outcome.INCONCLUSIVE,
        reason,
        trials=trials,
        effect_name="share that holds",
        effect=rate.share,
        interval=_bounds(rate),
        k=rate.k_low,
        n=rate.n,
    )


def _culprit(
    evidence: Evidence, guilty: OpenedClass | None, given: Blame | None
) -> tuple[Blame, Ladder | None]:
    """A failure of recall alone says nothing of who is to blame; some of its forms do."""
    if evidence.mostly_lost_in_rendering:
        return Blame.DEPLOYMENT, Ladder.STRUCTURAL
    if guilty is not None and names_a_place(guilty.name) and rest_is_healthy(guilty, evidence):
        # a model has no reason to forget at one residue of the length and nowhere else
        return Blame.DEPLOYMENT, Ladder.STRUCTURAL
    return given or Blame.UNKNOWN, None


def _rate_words(
    rate: Rate, bounds: tuple[float, float], threshold: float, what: str = "right"
) -> str:
    unit = "" if rate.n == rate.trials else f" clusters ({rate.trials} trials)"
    return (
        f"{rate.k:g} of {rate.n}{unit} {what} ({rate.share:.3f}; 95 % bounds {bounds[0]:.3f} to"
        f" {bounds[1]:.3f}) against >= {threshold:.2f}"
    )


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
    **fields: Any,
) -> Finding:
    return Finding(
        claim=claim.id,
        suite=claim.suite,
        title=title,
        outcome=outcome,
        reason=reason,
        trials=tuple(dict.fromkeys(trial.id for trial in trials)),
        paths=tuple(sorted({path for trial in trials for path in trial.paths})),
        provisional=outcome is Outcome.FAIL,
        **fields,
    )
