"""What the suite says: hunt, write down what was found, decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fidelity.fuzz.abilities import can_of, rules_of
from fidelity.fuzz.hunt import REPEATS, Hunt, Hunted, Limits, recipe_of
from fidelity.fuzz.isolation import Way
from fidelity.fuzz.judging import cut_short, doubted, finding_of, null_finding_of
from fidelity.fuzz.moves import Kind, Move, Moves, digest, requests_of
from fidelity.fuzz.phrasing import script_of
from fidelity.fuzz.trying import RUNG, script_probe
from fidelity.fuzz.writing import in_words, replay_command, write_files
from fidelity.words import Ladder

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


def findings_of(
    measure: Measure, found: Hunted, profile: Mapping[str, Any] | None
) -> tuple[Finding, Finding]:
    """Return both decisions: on the scripts, and on their isolated requests asked twice."""
    trials = list(found.trials)
    reason = ""
    if found.shortest is not None:
        moves, trial = found.shortest
        if trial not in trials:
            trials.append(trial)
        reason = f"{trial.error}; {_told(moves, found)}"
        command = (profile or {}).get("script", {}).get("command")
        reason += f"; to see it again: {command}" if command else ""
    total = sum(requests_of(_moves(t.recipe)) for t in found.trials)
    what = f"{len(found.trials)} random scripts of {total} requests"
    finding = finding_of(measure, trials, reason=reason, what=what)
    if found.planned_games is not None:
        finding = cut_short(finding, len(found.trials), found.planned_games)
    return (
        finding if _confirmed(found) else doubted(finding),
        null_finding_of(measure, [*trials, *found.again]),
    )


def _confirmed(found: Hunted) -> bool:
    """False when what was seen once may be a slip, and other words did not bear it out.

    A fact that is lost, or told to the wrong conversation, refutes by itself when the very same
    tokens were compared. A difference of numbers, however isolated, may be one wild step of a
    rounded logit: it must come twice more. With another first line a wrong answer may be a slip of
    the model: it must come each time.
    """
    if found.shortest is None:
        return True
    cell = found.shortest[1].cell
    if cell.get("isolation") != Way.OTHER_LINE and cell.get(RUNG) == Ladder.STRUCTURAL:
        return True
    failed = sum(trial.ok is False for trial in found.again)
    if cell.get("isolation") == Way.OTHER_LINE:
        return 0 < failed == len(found.again)
    return failed >= REPEATS


def _moves(recipe: dict[str, object]) -> Moves:
    import msgspec

    return msgspec.convert(recipe["moves"], Moves)


def _told(moves: Moves, found: Hunted) -> str:
    return (
        f"shortest script, {requests_of(moves)} requests: {in_words(moves)}; with other words it"
        f" {_again(found)}"
    )


def _again(found: Hunted) -> str:
    failed = sum(trial.ok is False for trial in found.again)
    return f"fails again in {failed} of {len(found.again)}"


def profile_of(measure: Measure, found: Hunted) -> dict[str, Any] | None:
    """Write the shortest failing script into the run's folder; return what the report shows of it.

    None when nothing failed.
    """
    if found.shortest is None:
        return None
    moves, trial = found.shortest
    shown: dict[str, Any] = {
        "trial": trial.id,
        "steps": in_words(moves).split(" -> "),
        "again": f"with other words it {_again(found)}",
    }
    if measure.folder is not None:
        name = digest(moves)
        script = script_of(moves, seed=f"{measure.seed} {name}", about=in_words(moves))
        path = write_files(measure.folder, script, name=name)
        shown["files"] = [path.name, f"test_{path.stem}.py"]
        shown["command"] = replay_command(path, measure.settings)
    return {"script": shown}
