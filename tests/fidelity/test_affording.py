"""A slow server is asked its shorter lengths, and what was left away is said."""

from types import SimpleNamespace

import pytest

from fidelity.checks.affording import (
    FEWEST_NEIGHBOURS,
    LEAST_CONTEXT_TOKENS,
    afforded,
    context_within,
)
from fidelity.endpoint.caps import BUDGET_S, LEAST_TOKENS, SWEEP_SHARE, TIME_SHARE, Caps
from fidelity.runs.reopening import Room
from fidelity.verdicts.opened import CLASS_TRIALS
from fidelity.words import Budget

ROWS = [256, 512, 1_024, 2_048, 4_096, 8_192]


def rows_within(room_tokens, **options):
    return afforded(ROWS, each=14, room_tokens=room_tokens, **options)


def test_without_a_bound_everything_is_asked_and_nothing_is_said():
    asked = rows_within(None, neighbours=64, neighbour_tokens=193, beside_tokens=5_000)
    assert (asked.rows, asked.neighbours, asked.note) == (ROWS, 64, "")


@pytest.mark.parametrize(
    ("room", "longest"), [(0, 256), (44 * 512, 512), (44 * 511, 256), (14 * 8_064, 2_048)]
)
def test_the_longest_lengths_are_left_away_and_named(room, longest):
    asked = rows_within(room)
    assert asked.rows[-1] == longest
    assert all(f"{row:,}" in asked.note for row in ROWS if row > longest)
    assert "lengths of" in asked.note


def test_a_length_is_asked_only_where_its_class_could_be_asked_again():
    room = Room(44 * 2_048)
    assert rows_within(44 * 2_048).rows == ROWS[:4]  # 14 of each would cost 54k of these 90k
    again = [SimpleNamespace(cost_tokens=2_048)] * CLASS_TRIALS
    assert [room.admits(again), room.admits(again)] == [True, False]


def test_what_is_asked_beside_is_taken_off_first():
    bare = 14 * sum(ROWS)
    most = max(bare, 44 * ROWS[-1])
    assert rows_within(most).rows == ROWS
    assert rows_within(most, beside_tokens=most - bare + 1).rows == ROWS[:-1]


def test_neighbours_are_halved_down_to_the_fewest_that_bear_their_claim():
    asked = rows_within(100, neighbours=64, neighbour_tokens=193)
    assert asked.neighbours == FEWEST_NEIGHBOURS
    assert "16 of 64 neighbouring lengths" in asked.note


def test_the_sweep_shares_what_generating_leaves_of_the_budget():
    caps = Caps(max_requests=1, max_tokens=None, allow=())
    caps.derive(Budget.QUICK, 1_000.0, 80.0)
    assert caps.max_tokens == 900_000
    assert caps.sweep_tokens == SWEEP_SHARE * (BUDGET_S[Budget.QUICK] - 100) * 1_000


def test_a_server_that_generates_slowly_still_has_prompts_to_read():
    caps = Caps(max_requests=1, max_tokens=None, allow=())
    caps.derive(Budget.QUICK, 100.0, 1.0)
    assert caps.max_tokens == LEAST_TOKENS
    assert caps.sweep_tokens == pytest.approx(SWEEP_SHARE * 300 * 100, abs=1)


def test_a_given_cap_is_kept_and_bounds_the_sweep():
    caps = Caps(max_requests=1, max_tokens=30_000, allow=())
    assert caps.derive(Budget.QUICK, 1e6, 1e6) == 30_000
    assert caps.sweep_tokens == 12_000


def test_a_generous_cap_does_not_give_a_sweep_the_time_of_all_others():
    caps = Caps(max_requests=1, max_tokens=400_000, allow=())
    assert caps.derive(Budget.QUICK, 180.0, 80.0) == 400_000
    assert caps.sweep_tokens == SWEEP_SHARE * (BUDGET_S[Budget.QUICK] - 100) * 180
    assumed = Caps(max_requests=1, max_tokens=400_000, allow=())
    assumed.derive(Budget.QUICK, 180.0, 80.0, measured=False)
    assert assumed.sweep_tokens == SWEEP_SHARE * 400_000


def test_under_a_time_cap_a_sweep_leaves_time_for_the_claims_behind_it():
    caps = Caps(max_requests=1, max_tokens=None, allow=())
    caps.derive(Budget.QUICK, 180.0, 80.0)
    assert caps.sweep_room() == caps.sweep_tokens == 57_600
    assert caps.sweep_room(600.0, claims_left=25) == TIME_SHARE * 600 * 180
    assert caps.sweep_room(600.0, claims_left=2) == 600 * 180 // 3
    assert caps.sweep_room(600.0, claims_left=1) == 600 * 180 // 2
    assert caps.sweep_room(-5.0, claims_left=25) == 0
    assert caps.sweep_room(10_000.0, claims_left=1) == caps.sweep_tokens


def test_a_speed_that_was_not_measured_bounds_no_sweep_by_time():
    caps = Caps(max_requests=1, max_tokens=400_000, allow=())
    caps.derive(Budget.QUICK, 180.0, 80.0, measured=False)
    assert caps.sweep_room(10.0, claims_left=25) == caps.sweep_tokens


def measure_at(*, limit, sweep_tokens, planning=False):
    notes = []
    deployment = SimpleNamespace(capabilities=SimpleNamespace(max_model_len=limit))
    return SimpleNamespace(
        deployment=deployment,
        sweep_room=lambda: None if planning else sweep_tokens,
        note=notes.append,
        notes=notes,
    )


@pytest.mark.parametrize(
    ("limit", "sweep_tokens", "within"),
    [(8_192, 10**7, 8_192), (None, 10**8, None), (8_192, 200_000, 2_000), (None, 100, 1_024)],
)
def test_prompts_of_a_claim_stay_within_what_is_afforded(limit, sweep_tokens, within):
    measure = measure_at(limit=limit, sweep_tokens=sweep_tokens)
    assert context_within(measure, 100) == within
    assert bool(measure.notes) == (within not in {limit, None})
    assert within is None or within >= LEAST_CONTEXT_TOKENS


def test_a_plan_is_bounded_by_the_server_alone():
    measure = measure_at(limit=4_096, sweep_tokens=1, planning=True)
    assert context_within(measure, 100) == 4_096
