"""The e-process: known values, false alarms over many looks, delay until a fault is seen."""

import random
import statistics

import pytest

from fidelity.statistics.sequential import e_value, may_stop_for_fail


def test_values_of_one_way_losses():
    assert e_value(0, 0) == 1.0
    assert e_value(1, 0) == pytest.approx(1.0)
    assert e_value(7, 0) == pytest.approx(2**7 / 8)
    assert not may_stop_for_fail(7, 0)
    assert may_stop_for_fail(8, 0)


def test_gains_never_stop_a_run():
    assert e_value(0, 12) > 20
    assert not may_stop_for_fail(0, 12)


def test_false_alarms_over_400_looks_stay_within_the_stated_rate():
    """Published: .022 at nominal .05, for losses and gains that are equally likely."""
    rng = random.Random(5)  # noqa: S311 - a simulation
    alarms = sum(
        _stops(rng, lost_rate=0.10, gained_rate=0.10, looks=400) is not None for _ in range(400)
    )
    assert alarms <= 20


def test_probes_until_a_fault_is_seen():
    """Published medians: 16 and 31 probes at fault rates of 50 and 25 %."""
    rng = random.Random(6)  # noqa: S311 - a simulation
    for rate, low, high in ((0.5, 13, 20), (0.25, 26, 38)):
        stops = [_stops(rng, lost_rate=rate, gained_rate=0.0, looks=400) for _ in range(300)]
        assert low <= statistics.median(stop or 400 for stop in stops) <= high


def _stops(rng, *, lost_rate, gained_rate, looks):
    lost = gained = 0
    for look in range(1, looks + 1):
        draw = rng.random()
        lost += draw < lost_rate
        gained += lost_rate <= draw < lost_rate + gained_rate
        if may_stop_for_fail(lost, gained):
            return look
    return None
