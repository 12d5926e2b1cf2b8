"""Rebuilds a probe from the recipe that its trial carries: the journal holds no prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fidelity.checks import (
    abort,
    abort_plans,
    bystanders,
    cached_follow_up,
    continuation,
    gauges,
    leak,
    recall,
)
from fidelity.checks.conversation import one_message_probe, turns_probe
from fidelity.errors import ConfigError
from fidelity.gain.reading import Reading, gain_probe
from fidelity.probes.dialogue import Outline, Shape
from fidelity.probes.needles import NeedleKind
from fidelity.probes.probe import Probe
from fidelity.words import Traffic

_OUTLINE = ("seed", "shape", "facts", "note_lines")


def rebuild(recipe: Mapping[str, Any]) -> Probe:
    """Return the probe of a recipe: the same key, prompt and right answer.

    Raises:
        ConfigError: an unknown builder, or arguments that it does not take.
    """
    arguments = dict(recipe)
    builder = _BUILDERS.get(str(arguments.pop("builder", "")))
    if builder is None:
        known = ", ".join(sorted(_BUILDERS))
        raise ConfigError(f"no builder {recipe.get('builder')!r}; known are {known}")
    try:
        return builder(arguments)
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigError(
            f"the recipe {dict(recipe)!r:.300} cannot be followed: {error}"
        ) from error


def _needle(arguments: dict[str, Any]) -> Probe:
    kind = NeedleKind(arguments.pop("kind"))
    return recall.needle_probe(kind=kind, **arguments)


def _outline(arguments: dict[str, Any]) -> Outline:
    taken = {name: arguments.pop(name) for name in _OUTLINE}
    return Outline(**taken | {"shape": Shape(taken["shape"])})


def _turns(arguments: dict[str, Any]) -> Probe:
    aim = arguments.pop("aim", None)
    return turns_probe(_outline(arguments), aim=tuple(aim) if aim else None)


def _one_message(arguments: dict[str, Any]) -> Probe:
    return one_message_probe(_outline(arguments), **arguments)


def _plan(arguments: dict[str, Any]) -> abort_plans.Plan:
    how, after = abort_plans.How(arguments.pop("how")), abort_plans.After(arguments.pop("after"))
    return abort_plans.Plan(how=how, after=after, **arguments)


def _aborted(arguments: dict[str, Any]) -> Probe:
    return abort.aborted_probe(_plan(arguments), abort_plans.Pace())


def _undisturbed(arguments: dict[str, Any]) -> Probe:
    without = arguments.pop("without_facts", False)
    return abort.undisturbed_probe(_plan(arguments), abort_plans.Pace(), without_facts=without)


def _bystander(arguments: dict[str, Any]) -> Probe:
    hows = [abort_plans.How(how) for how in arguments.pop("hows")]
    return bystanders.bystander_probe(hows=hows, **arguments)


def _gauges(arguments: dict[str, Any]) -> Probe:
    hows = [abort_plans.How(how) for how in arguments.pop("hows")]
    return gauges.gauges_probe(hows=hows, **arguments)


def _canary(arguments: dict[str, Any]) -> Probe:
    beside = [(str(seed), int(size)) for seed, size in arguments.pop("beside")]
    traffic = Traffic(arguments.pop("traffic"))
    aim = arguments.pop("aim", None)
    return leak.canary_probe(
        beside=beside, traffic=traffic, aim=tuple(aim) if aim else None, **arguments
    )


def _gain(arguments: dict[str, Any]) -> Probe:
    altered = str(arguments.pop("altered"))
    kind = NeedleKind(arguments.pop("kind"))
    return gain_probe(Reading(kind=kind, **arguments), altered=altered)


_BUILDERS: dict[str, Callable[[dict[str, Any]], Probe]] = {
    "needle_probe": _needle,
    "turns_probe": _turns,
    "one_message_probe": _one_message,
    "cached_probe": lambda arguments: cached_follow_up.cached_probe(**arguments),
    "continuation_probe": lambda arguments: continuation.continuation_probe(**arguments),
    "aborted_probe": _aborted,
    "undisturbed_probe": _undisturbed,
    "bystander_probe": _bystander,
    "gauges_probe": _gauges,
    "canary_probe": _canary,
    "gain_probe": _gain,
}
