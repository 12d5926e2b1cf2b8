"""Suites run in order of what they tell for what they cost, so that a spent cap cuts off the rest.

Requests of one token and short prompts come first, floods and storms last; a suite that is not
named comes before those. A golden tells whom a failed recall is to be blamed on, so it goes before
recall. The order within a suite is that of its file.
"""

from pathlib import Path

import pytest

FIRST = ("plumbing", "golden", "needle_sweep", "multi_turn_recall", "context_gain", "continuation")
LAST = ("long_generation", "no_cross_conversation_leak", "stateful", "abort_then_followup")
_HERE = Path(__file__).resolve().parent


def _place(item: pytest.Item) -> int:
    stem = item.path.stem.removeprefix("test_")
    if stem in FIRST:
        return FIRST.index(stem)
    return len(FIRST) + (1 + LAST.index(stem) if stem in LAST else 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the claims of these suites among themselves; other tests keep their places."""
    places = [at for at, item in enumerate(items) if item.path.is_relative_to(_HERE)]
    ours = sorted((items[at] for at in places), key=_place)
    for at, item in zip(places, ours, strict=True):
        items[at] = item
