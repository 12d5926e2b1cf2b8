"""What is missed in a short prompt is not asked in a long one, and then nobody calls it a pass."""

from types import SimpleNamespace

import pytest

from fidelity.checks.competence import MOST_MISSES, TRIALS, kinds_within_reach
from fidelity.probes.needles import NeedleKind

KINDS = (NeedleKind.SINGLE, NeedleKind.SINGLE, NeedleKind.NEAR_DUPLICATE, NeedleKind.KEY_VALUE)


class Model:
    """Misses so many needles of one kind; what is None could not be measured."""

    seed = 7

    def __init__(self, kind, misses, unmeasured=0):
        self.kind, self.left, self.unmeasured = kind, misses, unmeasured
        self.asked = []

    def ask(self, probes, *, arm):
        self.asked += probes
        return [SimpleNamespace(ok=self._answer(probe.cell["needle_kind"])) for probe in probes]

    def undecided_finding(self, trials, *, title, reason):
        return len(trials), title, reason

    def _answer(self, kind):
        if kind != self.kind:
            return True
        if self.left:
            self.left -= 1
            return False
        if self.unmeasured:
            self.unmeasured -= 1
            return None
        return True


@pytest.mark.parametrize("misses", [0, MOST_MISSES])
def test_a_model_that_can_is_asked_every_kind(misses):
    model = Model(NeedleKind.KEY_VALUE, misses)
    assert kinds_within_reach(model, KINDS) == (list(KINDS), [])
    assert len(model.asked) == 2 * TRIALS


def test_a_kind_beyond_the_model_is_left_away_and_leaves_the_claim_undecided():
    model = Model(NeedleKind.NEAR_DUPLICATE, MOST_MISSES + 1)
    kinds, undecided = kinds_within_reach(model, KINDS)
    assert kinds == [KINDS[0], KINDS[1], NeedleKind.KEY_VALUE]
    ((trials, title, reason),) = undecided
    assert (trials, title) == (TRIALS, "near duplicate needles are found")
    assert reason.startswith(f"{TRIALS - MOST_MISSES - 1} of {TRIALS} right")


def test_trouble_of_the_server_is_no_miss():
    model = Model(NeedleKind.NEAR_DUPLICATE, 0, unmeasured=TRIALS)
    assert kinds_within_reach(model, KINDS) == (list(KINDS), [])


def test_a_single_needle_is_never_left_away():
    model = Model(NeedleKind.SINGLE, 100)
    assert NeedleKind.SINGLE in kinds_within_reach(model, KINDS)[0]
