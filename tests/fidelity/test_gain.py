"""Context gain: what is asked, and when a loss of it is the deployment's."""

import pytest

from fidelity.errors import ConfigError
from fidelity.gain.judging import _untouched, profile_of
from fidelity.gain.reading import fresh_of_class, gain_probe, sweep
from fidelity.records import Trial

ROWS = {256: 5, 768: 5, 2_048: 5}


def facts():
    return sweep(seed="1", rows=ROWS, both_ways_tokens=256, bound_nats=0.001)


def trial(key, gain, *, depth=0.5, tokens=700, row=768, untouched=False):
    return Trial(
        id=f"t{key}",
        claim="c",
        suite="s",
        probe="context gain",
        key=str(key),
        ok=gain > 0.001,
        value=gain,
        cell={"length_tokens": row, "prompt_tokens": tokens, "depth_frac": depth},
        details={"untouched": untouched},
    )


def test_each_length_has_every_depth_and_no_residue_twice():
    for row in ROWS:
        found = [fact for fact in facts() if fact.row_tokens == row]
        assert sorted(fact.depth_frac for fact in found) == [0.0, 0.25, 0.5, 0.75, 1.0]
        assert len({fact.tokens % 64 for fact in found}) == 5
        assert {fact.both_ways for fact in found} == {row == 256}


def test_the_other_way_costs_two_requests_more():
    costs = {fact.both_ways: gain_probe(fact).cost_requests for fact in facts()}
    assert costs == {True: 4, False: 2}


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("length_tokens=768", lambda fact: fact.row_tokens == 768),
        ("depth_frac=0.25", lambda fact: fact.depth_frac == 0.25),
        ("residue_4=3", lambda fact: fact.tokens % 4 == 3),
    ],
)
def test_fresh_facts_are_of_exactly_their_class(name, holds):
    found = fresh_of_class(name, 22, seed=1, rows=list(ROWS), bound_nats=0.0)
    assert len({fact.seed for fact in found}) == 22
    assert all(holds(fact) for fact in found)
    with pytest.raises(ConfigError, match="colour=red"):
        fresh_of_class("colour=red", 22, seed=1, rows=list(ROWS), bound_nats=0.0)


READ = tuple(trial(i, 3.0, depth=0.0) for i in range(5))


class TestWhoLostIt:
    def test_facts_that_touch_nothing_where_farther_ones_are_read_are_the_deployments(self):
        lost = [trial(10 + i, 0.0, untouched=True) for i in range(3)]
        assert _untouched([*READ, *lost]) == 3

    def test_a_weak_model_is_touched_and_blamed_for_nothing(self):
        weak = [trial(10 + i, -0.4) for i in range(3)]
        assert _untouched([*READ, *weak]) == 0

    def test_a_model_whose_attention_does_not_reach_is_blamed_for_nothing(self):
        near = [trial(i, 3.0, depth=0.75) for i in range(5)]
        far = [trial(10 + i, 0.0, depth=0.0, untouched=True) for i in range(5)]
        assert _untouched([*near, *far]) == 0

    def test_one_such_fact_among_weak_ones_is_not_enough(self):
        mixed = [trial(10, 0.0, untouched=True), *(trial(11 + i, -0.4) for i in range(3))]
        assert _untouched([*READ, *mixed]) == 0


def test_the_profile_has_a_cell_for_each_length_and_depth_that_was_asked():
    found = profile_of([trial(1, 2.0), trial(2, 4.0), trial(3, 1.0, depth=1.0)], [], rows=[768])
    assert [(c["depth_frac"], c["mean"], c["least"], c["n"]) for c in found["cells"]] == [
        (0.5, 3.0, 2.0, 2),
        (1.0, 1.0, 1.0, 1),
    ]
    assert found["lengths"][0]["gains"] == 3
