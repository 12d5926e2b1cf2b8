"""Holm's procedure against the worked example of the literature, and its error rate."""

import random

import pytest

from fidelity.statistics.holm import holm, lines


def test_worked_example():
    # four hypotheses at 0.05: .005 < .05/4, .010 < .05/3, .030 > .05/2 stops the procedure
    steps = holm({"h1": 0.01, "h2": 0.04, "h3": 0.03, "h4": 0.005})
    assert [step.name for step in steps] == ["h4", "h1", "h3", "h2"]
    assert [step.adjusted for step in steps] == pytest.approx([0.02, 0.03, 0.06, 0.06])
    assert [step.rejected for step in steps] == [True, True, False, False]


def test_the_family_counts_claims_without_a_p_value():
    assert holm({"a": 0.01}, family=4)[0].adjusted == pytest.approx(0.04)
    assert not holm({"a": 0.01}, family=5)[0].rejected  # exactly .05 does not stand


def test_a_small_p_value_behind_a_large_one_is_not_rejected():
    steps = holm({"a": 0.04, "b": 0.045})
    assert [step.rejected for step in steps] == [False, False]


def test_false_alarms_of_a_family_stay_at_five_percent():
    rng = random.Random(11)  # noqa: S311 - a simulation
    alarms = sum(
        any(step.rejected for step in holm({str(i): rng.random() for i in range(14)}))
        for _ in range(4000)
    )
    assert 140 <= alarms <= 245  # 5 % of 4,000 is 200; three standard deviations are 41


def test_lines_say_the_family_and_what_stands():
    text = lines(holm({"a": 0.001, "b": 0.2}, family=14), family=14)
    assert text[0] == "Holm over 14 planned claims at 0.05, 2 fail decisions:"
    assert text[1].endswith("adjusted 0.014, stands")
    assert text[2].endswith("does not stand")
    assert "no fail decision" in lines([], family=3)[0]
