"""One function says how bad a difference is."""

import pytest

from fidelity.statistics.ladder import Difference, rung, worst
from fidelity.words import Ladder


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (Difference(equal=True), Ladder.EXACT),
        (Difference(size=0.01, null_floor=0.02), Ladder.ROUNDING),
        (Difference(size=0.02, null_floor=0.02), Ladder.ROUNDING),
        (Difference(size=0.03, null_floor=0.02), Ladder.DRIFT),
        (Difference(size=0.0, null_floor=0.02, selection_changed=True), Ladder.SELECTION),
        (Difference(equal=True, selection_changed=True), Ladder.SELECTION),
        (Difference(lost=True), Ladder.STRUCTURAL),
        (Difference(foreign=True, equal=True), Ladder.STRUCTURAL),
    ],
)
def test_the_worst_rung_that_the_evidence_proves(difference, expected):
    assert rung(difference) is expected


def test_without_a_null_floor_a_size_proves_nothing():
    assert rung(Difference(size=5.0)) is None
    assert rung(Difference()) is None


def test_the_worst_of_several_follows_the_order_of_the_words():
    assert worst([Ladder.DRIFT, Ladder.EXACT, Ladder.SELECTION]) is Ladder.SELECTION
    assert worst([]) is None
    assert worst(list(Ladder)) is Ladder.STRUCTURAL
