"""The stored baseline: what each microtest and claim measured when it was last accepted.

A rate is worse when the upper bound of now lies below the stored rate by more than the margin; a
check of a patch is worse when it used up more of its limit than then, by more than the margin.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from fidelity.errors import ConfigError
from fidelity.gate.items import Item
from fidelity.gate.mapping import Touched
from fidelity.gate.microtest_run import Effect, MicrotestResult
from fidelity.records import Finding
from fidelity.words import Ladder, Outcome

SCHEMA_VERSION = 1
_RUNGS = tuple(Ladder)
_HARMLESS = Ladder.ROUNDING
DEFAULT_MARGIN = 0.1


class StoredMicrotest(msgspec.Struct, frozen=True, kw_only=True):
    """A microtest that passed."""

    passed: int
    effects: dict[str, Effect] = {}


class StoredClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as it came out."""

    outcome: Outcome
    effect_name: str = ""
    effect: float | None = None
    k: int | None = None
    n: int | None = None
    ladder: Ladder | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A stored baseline.

    `claims` are kept by "deployment, budget": runs of different ones are not compared.
    """

    schema_version: int = SCHEMA_VERSION
    commit: str = ""
    microtests: dict[str, StoredMicrotest] = {}
    claims: dict[str, dict[str, StoredClaim]] = {}


def read(path: Path) -> Baseline:
    """Read a stored baseline.

    Raises:
        ConfigError: it is not there, or is none of this version.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"no baseline at {path}: `fidelity gate --baseline {path} --baseline-update` writes it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read as a baseline: {error}") from None
    return decoded(text, path)


def decoded(text: bytes, path: Path) -> Baseline:
    """Return the baseline that this text of a file is.

    Raises:
        ConfigError: it is none of this version.
    """
    try:
        found = msgspec.json.decode(text, type=Baseline)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} cannot be read as a baseline: {error}") from None
    if found.schema_version != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} is a baseline of version {found.schema_version}, accepted is {SCHEMA_VERSION}"
        )
    return found


def asks_no_less(old: Baseline, new: Baseline) -> bool:
    """Tell whether a changed baseline holds everything against at least as small a figure."""
    for name, was in old.microtests.items():
        now = new.microtests.get(name)
        if now is None or now.passed < was.passed:
            return False
        for check, effect in was.effects.items():
            kept = now.effects.get(check)
            if kept is None or kept.value / kept.limit > effect.value / effect.limit:
                return False
    return all(
        new.claims.get(key, {}).get(claim) == was
        for key, claims in old.claims.items()
        for claim, was in claims.items()
    )


def updated(
    old: Baseline,
    commit: str,
    microtests: Mapping[str, MicrotestResult],
    runs: Mapping[str, Iterable[Finding]],
) -> Baseline:
    """Return a baseline with what passed now in place of what it held of the same."""
    kept = {
        name: StoredMicrotest(passed=result.passed.total(), effects=dict(result.effects))
        for name, result in microtests.items()
        if result.outcome is Outcome.PASS
    }
    claims = {key: dict(stored) for key, stored in old.claims.items()}
    for key, findings in runs.items():
        claims.setdefault(key, {}).update(
            {
                f.claim: StoredClaim(
                    outcome=f.outcome,
                    effect_name=f.effect_name,
                    effect=f.effect,
                    k=f.k,
                    n=f.n,
                    ladder=f.ladder,
                )
                for f in findings
                if f.outcome is Outcome.PASS
            }
        )
    return Baseline(commit=commit, microtests={**old.microtests, **kept}, claims=claims)


def write(path: Path, baseline: Baseline) -> None:
    """Write a baseline, sorted, so that its diff is short.

    Raises:
        ConfigError: it cannot be written.
    """
    text = msgspec.json.encode(baseline, order="sorted")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(text, indent=1) + b"\n")
    except OSError as error:
        raise ConfigError(f"the baseline cannot be written: {error}") from None


def compare_microtest(
    touched: Touched, now: MicrotestResult, was: StoredMicrotest | None, margin: float
) -> list[Item]:
    """Hold a microtest that passed against the stored one."""
    if was is None or now.outcome is not Outcome.PASS:
        return []
    words = []
    for name, effect in now.effects.items():
        then = was.effects.get(name)
        if then is None:
            continue
        share, before = effect.value / effect.limit, then.value / then.limit
        if share > before + margin:
            words.append(
                f"{name}: {effect.value:.3g} is {share:.0%} of its limit, it was {then.value:.3g},"
                f" {before:.0%} (margin {margin:.0%})"
            )
    lost = [name for name in was.effects if name not in now.effects]
    if lost:
        words.append(
            f"no longer measured: {lost[0]}" + (f", {len(lost)} in all" if lost[1:] else "")
        )
    if now.passed.total() < was.passed:
        words.append(f"{now.passed.total()} tests passed, {was.passed} did in the baseline")
    change = touched.change
    return [
        Item(
            rule="worse-than-baseline",
            subject=touched.patch.name,
            outcome=Outcome.FAIL,
            message=f"{touched.patch.name}: {text}",
            path=change.path,
            line=change.line,
        )
        for text in words
    ]


def compare_claim(finding: Finding, was: StoredClaim | None, margin: float) -> str:
    """Say in what a claim is worse than stored; "" where it is not, or where nothing is stored."""
    if was is None:
        return ""
    if finding.outcome is not was.outcome:
        return f"{finding.outcome}, it was a {was.outcome} in the baseline"
    if was.k is not None and was.effect is not None and finding.interval and finding.k is not None:
        upper = finding.interval[1]
        if upper < was.effect - margin:
            return (
                f"{finding.effect_name or 'rate'} {finding.effect:.3f} (at most {upper:.3f}) is"
                f" below {was.effect:.3f} of the baseline by more than {margin:g}"
            )
    if _rung(finding.ladder) > max(_rung(was.ladder), _RUNGS.index(_HARMLESS)):
        return f"{finding.ladder}, it was {was.ladder or 'no difference'} in the baseline"
    return ""


def _rung(ladder: Ladder | None) -> int:
    return -1 if ladder is None else _RUNGS.index(ladder)
