"""From texts that two deployments scored to one finding, with its profile and its rung."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from fidelity.checks.given import needs_given_text
from fidelity.checks.second_stage import with_fresh
from fidelity.errors import HarnessError
from fidelity.golden.agreement import MODULI, MOVED_SHARE
from fidelity.golden.bias import FLOOR_SHARE, bias_finding
from fidelity.golden.texts import Pair
from fidelity.statistics.divergence import DTYPES, rounding_bound
from fidelity.statistics.ladder import Difference, rung
from fidelity.verdicts.evidence import Evidence
from fidelity.words import Blame, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.deployment.deployment import Deployment
    from fidelity.measure import Measure
    from fidelity.records import Finding, Trial
    from fidelity.verdicts.opened import OpenedClass

_NEARLY = 0.6
_LEAST_OPEN = 20
_NOT_AT_ONCE = 16
CONCENTRATED = 4
"""A class is a place when its share of moved tokens is this many times that of all others."""


def pair_of(measure: Measure) -> Pair:
    """Return the golden and the coarser dtype; both must score given text.

    Raises:
        CapabilityMissing, NotApplicable: the measured deployment cannot.
        HarnessError: no golden, or one that cannot.
    """
    needs_given_text(measure)
    golden = measure.golden
    if golden is None:
        raise HarnessError("this claim compares with a golden: --fidelity-golden NAME_OR_URL")
    settings = measure.settings
    origin = next((s.origin for s in settings.settings if s.name == "dtype"), "")
    for_both = settings.dtype if origin.startswith(("flag", "environment")) else None
    own = settings.beside.dtype if settings.beside is not None else None
    mine = _dtype(measure.deployment, settings.dtype)
    theirs = _dtype(golden, for_both or own)
    return Pair(golden=golden, dtype=max(mine, theirs, key=rounding_bound))


def _dtype(deployment: Deployment, declared: str | None) -> str:
    """Return what a deployment computes in: as declared, as it says, else bfloat16."""
    if declared:
        return declared
    said = str((deployment.server_info or {}).get("dtype", "")).lower().removeprefix("torch.")
    return said if said in DTYPES else "bfloat16"


def agree_finding(
    measure: Measure,
    trials: Sequence[Trial],
    opened: Sequence[OpenedClass],
    null: Sequence[Trial],
    threshold: float,
    *,
    dtype: str,
) -> tuple[list[Finding], dict[str, Any]]:
    """Return "texts agree" and "nothing is shifted", and the profile of both.

    Failures are blamed on the measured deployment.
    """
    finding = measure.rate_finding(
        trials,
        threshold,
        title=f"texts agree with the golden up to rounding in {dtype} in >= {threshold:.2f}",
        effect_name="texts that agree",
        blame=Blame.DEPLOYMENT,
    )
    held = Evidence.of(with_fresh(trials, opened)).measured
    profile = profile_of(held, dtype=dtype)
    words = _where(profile, [trial for trial in held if not trial.ok])
    ladder = finding.ladder or rung(_difference(held, null, profile, bound=rounding_bound(dtype)))
    if finding.outcome in {Outcome.FAIL, Outcome.PASS}:
        finding = msgspec.structs.replace(finding, ladder=ladder)
    if words:
        measure.note(words)  # of the claim, whichever of its parts speaks for it
    return [finding, bias_finding(measure, held, dtype=dtype)], profile


def continued_finding(
    measure: Measure,
    trials: Sequence[Trial],
    opened: Sequence[OpenedClass],
    threshold: float,
) -> tuple[Finding, dict[str, Any]]:
    """Return the finding "continuations agree", blamed on the measured one, and its profile."""
    finding = measure.rate_finding(
        trials,
        threshold,
        title=f"continuations agree with the golden's up to ties in >= {threshold:.2f}",
        effect_name="continuations that agree",
        blame=Blame.DEPLOYMENT,
    )
    held = Evidence.of(with_fresh(trials, opened)).measured
    profile = {"path": "decode", "lengths": _agreeing(held)}
    missed = [trial for trial in held if not trial.ok]
    common = _common_residue(missed)
    if finding.outcome is Outcome.FAIL and finding.ladder is None:
        ladder = rung(Difference(selection_changed=True, lost=bool(common)))
        finding = msgspec.structs.replace(finding, ladder=ladder)
    if not common:
        return finding, profile
    words = f"{finding.reason}; all {len(missed)} such texts have {common} tokens"
    return msgspec.structs.replace(finding, reason=words), profile


def _agreeing(trials: Sequence[Trial]) -> list[dict[str, int]]:
    """Return how many prompts of each length were continued, and how many of them alike."""
    rows = Counter(int(trial.cell["length_tokens"]) for trial in trials)
    good = Counter(int(trial.cell["length_tokens"]) for trial in trials if trial.ok)
    return [
        {"length_tokens": row, "texts": count, "agree": good[row]}
        for row, count in sorted(rows.items())
    ]


def _difference(
    trials: Sequence[Trial], null: Sequence[Trial], profile: dict[str, Any], *, bound: float
) -> Difference:
    sizes = [float(t.details["mean_abs_uncertain"] or 0.0) for t in trials]
    floors = [trial.value for trial in Evidence.of(null).measured if trial.value is not None]
    missed = [trial for trial in trials if not trial.ok]
    lost = [
        t for t in missed if any(name.startswith("the answer") for name in t.details["classes"])
    ]
    return Difference(
        equal=all(t.details["maximum"] == 0.0 for t in trials),
        size=sum(sizes) / len(sizes) if sizes else None,
        null_floor=max([*floors, FLOOR_SHARE * bound]) if floors else None,
        selection_changed=any(t.details["flips"] for t in missed),
        lost=bool(missed) and (2 * len(lost) >= len(missed) or bool(profile["places"])),
    )


def profile_of(trials: Sequence[Trial], *, dtype: str) -> dict[str, Any]:
    """Return where the arms part: by length, by part of the text, by position and residue."""
    residues = _summed([trial.details["residues"] for trial in trials])
    return {
        "path": "prefill",
        "dtype": dtype,
        "bound_nats": rounding_bound(dtype),
        "lengths": [
            _of_length(row, [t for t in trials if t.cell.get("length_tokens") == row])
            for row in sorted({int(t.cell["length_tokens"]) for t in trials})
        ],
        "eighths": _summed([trial.details["eighths"] for trial in trials]),
        "positions": _summed([trial.details["positions"] for trial in trials]),
        "residues": {str(m): _folded(residues, m) for m in MODULI},
        "places": _places(residues),
        "texts": {str(m): _texts_by_residue(trials, m) for m in MODULI[:2]},
        "divergences": [
            {
                "trial": trial.id,
                "tokens": trial.cell["prompt_tokens"],
                "position": trial.details["first_divergence"] + 1,
                "gap_nats": trial.details["first_divergence_gap"],
                "tie": trial.details["tie"],
            }
            for trial in trials
            if trial.details["first_divergence"] is not None
        ][:40],
    }


def _of_length(row: int, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the figures of one length; means over texts, extremes over all tokens."""

    def mean(name: str) -> float:
        return sum(float(t.details[name] or 0.0) for t in trials) / len(trials)

    worst = max(trials, key=lambda t: float(t.details["maximum"]))
    opened = sum(int(t.details["open"]) for t in trials)
    return {
        "length_tokens": row,
        "texts": len(trials),
        "agree": sum(bool(t.ok) for t in trials),
        "kl": mean("kl"),
        "kl_top": mean("kl_top"),
        "mean_abs": mean("mean_abs"),
        "p99": max(float(t.details["p99"]) for t in trials),
        "maximum": worst.details["maximum"],
        "maximum_at": worst.details["maximum_at"] + 1,
        "top1_agreement": mean("top1_agreement"),
        "moved_share": sum(int(t.details["moved"]) for t in trials) / opened if opened else 0.0,
        "answer_loss": mean("answer_loss"),
    }


def _summed(tables: Sequence[list[list[float]]]) -> list[list[float]]:
    if not tables:
        return []
    return [
        [sum(column) for column in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)
    ]


def _folded(residues: list[list[float]], modulus: int) -> list[list[float]]:
    """Return the sums modulo a divisor of the finest modulus."""
    folded = [[0.0, 0.0, 0.0] for _ in range(modulus)]
    for residue, row in enumerate(residues):
        folded[residue % modulus] = [
            a + b for a, b in zip(folded[residue % modulus], row, strict=True)
        ]
    return folded


def _texts_by_residue(trials: Sequence[Trial], modulus: int) -> list[list[int]]:
    """Return [texts, texts that do not agree] for every residue of a text's length."""
    counts = [[0, 0] for _ in range(modulus)]
    for trial in trials:
        held = counts[int(trial.cell["prompt_tokens"]) % modulus]
        held[0] += 1
        held[1] += not trial.ok
    return counts


def _places(residues: list[list[float]]) -> list[str]:
    """Return the residues of the position at which moved tokens are concentrated.

    Of several moduli the coarsest that is nearly as pure as the purest: a fault at 5 mod 16 is
    concentrated at 1 mod 4 too, and at 5 mod 64.
    """
    found = [_concentrated(_folded(residues, modulus)) for modulus in MODULI]
    purest = max((share for classes in found for share, _ in classes), default=0.0)
    for classes in found:
        if classes and classes[0][0] >= _NEARLY * purest:
            return [words for _, words in classes[:3]]
    return []


def _concentrated(rows: list[list[float]]) -> list[tuple[float, str]]:
    """Return (share of moved tokens, words) of the classes that stand out, the purest first."""
    opened, moved = sum(row[0] for row in rows), sum(row[2] for row in rows)
    found = []
    for residue, (n, _, far) in enumerate(rows):
        rest = (moved - far) / (opened - n) if opened > n else 0.0
        share = far / n if n >= _LEAST_OPEN else 0.0
        if share > MOVED_SHARE and share > CONCENTRATED * rest:
            place = f"position = {residue} mod {len(rows)}"
            words = f"{place} ({far:.0f} of {n:.0f} moved, {rest:.1%} elsewhere)"
            found.append((share, words))
    return sorted(found, reverse=True)


def _where(profile: dict[str, Any], missed: Sequence[Trial]) -> str:
    """Say where the arms part, from the texts that do not agree."""
    if not missed:
        return ""
    told = [f"moved tokens are concentrated at {', '.join(profile['places'])}"]
    told = told if profile["places"] else []
    begin = _begins_at(profile["positions"])
    told += [f"tokens move from position {begin} on"] if begin >= _NOT_AT_ONCE else []
    residues = _common_residue(missed)
    told += [f"all {len(missed)} such texts have {residues} tokens"] if residues else []
    kinds = Counter(name for trial in missed for name in _told(trial))
    most = [f"{name} in {count}" for name, count in kinds.most_common(3)]
    told += [f"too many tokens moved in: {', '.join(most)} of {len(missed)} texts"] if most else []
    shortest = min(int(t.cell["prompt_tokens"]) for t in missed)
    told.append(f"the shortest has {shortest} tokens")
    ties = [t.details["tie"] for t in missed if t.details["tie"] is not None]
    if ties:
        told.append(f"the first divergence is a rounding tie in {sum(ties)} of {len(ties)}")
    return "; ".join(told)


def _begins_at(positions: Sequence[Sequence[float]]) -> int:
    """Return the first power of two from whose octave on too many tokens move; 0 for none."""
    return next(
        (1 << k for k, (opened, _, far) in enumerate(positions) if far > MOVED_SHARE * opened), 0
    )


def _told(trial: Trial) -> list[str]:
    """Return the classes in which too many tokens moved; a whole text stands for its parts."""
    names = [str(name).rpartition(" (")[0] for name in trial.details["classes"]]
    return ["all tokens"] if "all tokens" in names else names


def _common_residue(missed: Sequence[Trial]) -> str:
    """Return the coarsest residue of the length that all of several texts share, "" if none."""
    if len(missed) < 3:
        return ""
    for modulus in MODULI:
        found = {int(t.cell["prompt_tokens"]) % modulus for t in missed}
        if len(found) == 1:
            return f"{found.pop()} mod {modulus}"
    return ""
