"""Effective context: estimate and bounds, and how often the bounds hold."""

import random

from fidelity.statistics.effective_context import EffectiveContext, Level, effective_context
from fidelity.statistics.stats import rate_of


def level(length, right, asked):
    return Level(length_tokens=length, rate=rate_of([("", i < right) for i in range(asked)]))


def test_a_cliff_is_found_between_the_lengths_beside_it():
    found = effective_context(
        [level(256, 22, 22), level(1024, 22, 22), level(2048, 22, 22), level(4096, 5, 22)]
    )
    assert found.estimate == 2048
    assert found.upper == 4096
    assert found.lower == 1024  # 44 clean trials from there on; 22 alone cannot show 0.9


def test_a_clean_sweep_is_shown_and_has_no_end():
    found = effective_context([level(length, 59, 59) for length in (256, 1024, 8192)])
    assert found == EffectiveContext(estimate=8192, lower=8192, upper=None)


def test_one_unlucky_length_does_not_end_the_context():
    found = effective_context([level(256, 21, 22), level(1024, 19, 22), level(4096, 22, 22)])
    assert found.estimate == 4096


def test_nothing_beyond_a_shown_loss_counts():
    clean = [level(length, 59, 59) for length in (1024, 4096, 8192)]
    found = effective_context([level(256, 59, 59), level(512, 20, 59), *clean])
    assert found == EffectiveContext(estimate=256, lower=256, upper=512)


def test_nothing_held_and_nothing_asked():
    assert effective_context([level(256, 2, 22)]) == EffectiveContext(
        estimate=None, lower=None, upper=256
    )
    assert effective_context([]) == EffectiveContext(estimate=None, lower=None, upper=None)
    assert effective_context([level(256, 0, 0)]).upper is None


def test_both_bounds_hold_in_at_least_95_percent_of_runs():
    rng = random.Random(3)  # noqa: S311 - a simulation
    truth = {256: 0.99, 1024: 0.97, 2048: 0.93, 4096: 0.80, 8192: 0.4}
    too_high = too_low = 0
    for _ in range(300):
        levels = [
            level(length, sum(rng.random() < share for _ in range(40)), 40)
            for length, share in truth.items()
        ]
        found = effective_context(levels)
        too_high += found.lower is not None and found.lower > 2048
        too_low += found.upper is not None and found.upper < 4096
    assert too_high <= 22
    assert too_low <= 22
