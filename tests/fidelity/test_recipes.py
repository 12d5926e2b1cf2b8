"""A recipe, written to JSON and read back, rebuilds its probe."""

import json

import pytest

from fidelity.checks import (
    abort,
    abort_plans,
    bystanders,
    cached_follow_up,
    continuation,
    gauges,
    leak,
)
from fidelity.checks.conversation import one_message_probe, turns_probe
from fidelity.checks.recall import needle_probe
from fidelity.checks.recipes import rebuild
from fidelity.errors import ConfigError
from fidelity.gain.reading import RIVAL, Reading, gain_probe
from fidelity.probes.dialogue import Outline, Shape
from fidelity.probes.needles import NeedleKind
from fidelity.words import Traffic

OUTLINE = Outline(seed="3", shape=Shape.TOOL_RESULT, facts=2, note_lines=7)
PLAN = abort_plans.Plan(
    seed="4",
    point="late",
    how=abort_plans.How.CALL,
    after=abort_plans.After.SAME,
    facts=9,
    lines_between=2,
)
PROBES = [
    needle_probe(
        seed="1",
        row_tokens=512,
        prompt_tokens=511,
        depth_frac=0.25,
        kind=NeedleKind.KEY_VALUE,
        repeated=True,
        boundary="512-1",
    ),
    turns_probe(OUTLINE),
    turns_probe(OUTLINE, aim=(16, 5)),
    one_message_probe(OUTLINE, without_fact=True),
    cached_follow_up.cached_probe(seed="2", residue=17, facts=4),
    continuation.continuation_probe(
        seed="5", topic="tea house", history_tokens=1_000, interrupted_after=24
    ),
    abort.aborted_probe(PLAN, abort_plans.Pace()),
    abort.undisturbed_probe(PLAN, abort_plans.Pace(), without_facts=True),
    bystanders.bystander_probe(seed="6", victims=3, hows=[abort_plans.How.CLOSE]),
    gauges.gauges_probe(seed="7", victims=5, hows=[abort_plans.How.CALL]),
    gain_probe(
        Reading(
            seed="9",
            row_tokens=256,
            tokens=251,
            depth_frac=0.5,
            kind=NeedleKind.NEAR_DUPLICATE,
            both_ways=True,
            bound_nats=0.25,
        ),
        altered=RIVAL,
    ),
    leak.canary_probe(seed="8", size=4, member=2, beside=[("other", 3)], traffic=Traffic.LOAD),
]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.recipe["builder"])
def test_a_recipe_rebuilds_its_probe(probe):
    again = rebuild(json.loads(json.dumps(dict(probe.recipe))))
    for name in ("family", "key", "cell", "expected", "cost_tokens", "traffic"):
        assert getattr(again, name) == getattr(probe, name), name
    assert json.dumps(dict(again.recipe)) == json.dumps(dict(probe.recipe))


def test_an_unknown_builder_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no builder 'magic'; known are aborted_probe"):
        rebuild({"builder": "magic"})


@pytest.mark.parametrize(
    "recipe",
    [
        {"builder": "needle_probe", "kind": "single"},
        {"builder": "needle_probe", "kind": "golden"},
        {"builder": "canary_probe"},
        {"builder": "turns_probe", "seed": "1"},
    ],
)
def test_a_recipe_with_missing_or_wrong_arguments_is_refused(recipe):
    with pytest.raises(ConfigError, match="cannot be followed"):
        rebuild(recipe)
