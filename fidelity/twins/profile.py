"""Where the arms of a twin part: by position in the answer, by residue, by depth, by length."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from fidelity.statistics.ladder import worst
from fidelity.words import Ladder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.records import Trial

AXES = ("residue_4", "residue_16", "residue_64", "depth_frac", "length_tokens")
_MOST_POSITIONS = 160


def profile_of(name: str, trials: Sequence[Trial], *, bound: float) -> dict[str, Any]:
    """Return the profile of a twin's measured trials, as `Finding.profile`.

    Keys: `twin`, its name; `words`, one clause; `proven`, how many trials prove the path, and
    `paths`, which; `null_nats` and `nats`, the largest difference of identical requests and of
    the arms; `bound_nats`, what may be rounding; `rung`; `position`, the largest difference by
    position of the answer; one mapping for each axis, value -> [prompts, prompts that part,
    largest nats].
    """
    measured = [trial for trial in trials if trial.ok is not None]
    nats = max((trial.value or 0.0 for trial in measured), default=0.0)
    null = max((float(trial.cell.get("null_nats", 0.0)) for trial in measured), default=0.0)
    rungs = [Ladder(rung) for trial in measured if (rung := trial.details.get("rung"))]
    rung = worst(rungs)
    return {
        "twin": name,
        "words": _words(nats, null),
        "proven": sum(bool(trial.paths) for trial in measured),
        "paths": sorted({path for trial in measured for path in trial.paths}),
        "prompts": len(measured),
        "nats": nats,
        "null_nats": null,
        "bound_nats": bound,
        "rung": "" if rung is None else str(rung),
        "position": _positions(measured),
        **{axis: _by_axis(measured, axis) for axis in AXES},
    }


def _words(nats: float, null: float) -> str:
    return f"largest difference {nats:.2g} nats, of identical requests {null:.2g}"


def _positions(trials: Sequence[Trial]) -> list[float]:
    largest: list[float] = []
    for trial in trials:
        for at, gap in enumerate(trial.details.get("gaps", ())[:_MOST_POSITIONS]):
            if at == len(largest):
                largest.append(0.0)
            largest[at] = max(largest[at], gap)
    return largest


def _by_axis(trials: Sequence[Trial], axis: str) -> dict[str, list[float]]:
    found: dict[float, list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for trial in trials:
        value = trial.cell.get(axis)
        if isinstance(value, int | float):
            row = found[value]
            row[0] += 1
            row[1] += not trial.ok
            row[2] = max(row[2], trial.value or 0.0)
    return {f"{value:g}": found[value] for value in sorted(found)}
