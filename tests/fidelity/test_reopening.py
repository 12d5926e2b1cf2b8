"""Asking classes again within what a slow server affords."""

from types import SimpleNamespace

from fidelity.runs.reopening import Room


def probes(count, tokens):
    return [SimpleNamespace(cost_tokens=tokens)] * count


def test_without_a_cap_every_class_is_asked():
    room = Room(None)
    assert all(room.admits(probes(22, 8_192)) for _ in range(9))
    assert room.note == ""


def test_the_first_class_is_asked_whatever_it_costs():
    assert Room(100).admits(probes(22, 8_192))


def test_classes_share_half_of_a_sweep_and_short_ones_still_fit_behind_long_ones():
    room = Room(60_000)
    assert room.admits(probes(22, 1_000))
    assert not room.admits(probes(22, 400))
    assert room.admits(probes(22, 200))
    assert not room.admits(probes(22, 200))
    assert room.note == "2 classes with a miss not asked again: the budget's token cap ends there"
