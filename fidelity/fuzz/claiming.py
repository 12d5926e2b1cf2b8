"""What the suite says: hunt, write down what was found, decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fidelity.fuzz.abilities import can_of, rules_of
from fidelity.fuzz.hunt import Hunt, Hunted, Limits, recipe_of
from fidelity.fuzz.judging import finding_of, null_finding_of
from fidelity.fuzz.moves import Kind, Move, Moves, digest, requests_of
from fidelity.fuzz.phrasing import script_of
from fidelity.fuzz.trying import script_probe
from fidelity.fuzz.writing import in_words, replay_command, write_files

if TYPE_CHECKING:
    from fidelity.measure import Measure
    from fidelity.probes.probe import Probe
    from fidelity.records import Finding

CALM: Moves = (
    Move(kind=Kind.OPEN, facts=4, which=1),
    Move(kind=Kind.OPEN, talk=1, facts=2),
    Move(kind=Kind.OPEN, talk=2, facts=7, which=3),
)
"""Conversations of one turn, one after the other: nothing is shared, nothing disturbed."""


def calm_probe(measure: Measure, name: str, *, altered: bool = False) -> Probe:
    """Return a game without disturbance, for the controls."""
    seed = f"{measure.seed} {name}"
    return script_probe(
        script_of(CALM, seed=seed),
        can_of(measure.deployment, measure.settings),
        key=name,
        recipe=recipe_of(CALM, seed),
        altered=altered,
    )


def hunt(measure: Measure, limits: Limits) -> Hunted:
    """Let the games be played."""
    can = can_of(measure.deployment, measure.settings)
    rules = rules_of(measure.deployment, measure.settings, most_requests=limits.requests)
    return Hunt(measure, can, rules, limits).run()


def findings_of(measure: Measure, found: Hunted) -> tuple[Finding, Finding]:
    """Return both decisions; of a failure, its shortest script is written into the run's folder."""
    trials = list(found.trials)
    reason = ""
    if found.shortest is not None:
        moves, trial = found.shortest
        if trial not in trials:
            trials.append(trial)
        reason = f"{trial.error}; {_told(measure, moves, found)}"
    total = sum(requests_of(_moves(t.recipe)) for t in found.trials)
    what = f"{len(found.trials)} random scripts of {total} requests"
    return (
        finding_of(measure, trials, reason=reason, what=what),
        null_finding_of(measure, [*trials, *found.again]),
    )


def _moves(recipe: dict[str, object]) -> Moves:
    import msgspec

    return msgspec.convert(recipe["moves"], Moves)


def _told(measure: Measure, moves: Moves, found: Hunted) -> str:
    again = sum(trial.ok is False for trial in found.again)
    words = (
        f"shortest script, {requests_of(moves)} requests: {in_words(moves)}; with other words it"
        f" fails again in {again} of {len(found.again)}"
    )
    folder = measure.folder
    if folder is None:
        return words
    name = digest(moves)
    script = script_of(moves, seed=f"{measure.seed} {name}", about=in_words(moves))
    path = write_files(folder, script, name=name)
    command = replay_command(path, measure.settings)
    return f"{words}; to see it again: {command}"
