"""Cheap suites run first; tests that are not ours keep their places."""

from pathlib import Path
from types import SimpleNamespace

from suites import conftest

SUITES = Path(conftest.__file__).parent


def item(path):
    return SimpleNamespace(path=Path(path))


def test_suites_are_sorted_among_themselves():
    names = ["abort_then_followup", "twins_cache", "needle_sweep", "plumbing", "long_generation"]
    items = [item(SUITES / f"test_{name}.py") for name in names]
    mine = item("/elsewhere/test_mine.py")
    items.insert(1, mine)
    conftest.pytest_collection_modifyitems(items)
    assert items[1] is mine
    stems = [found.path.stem.removeprefix("test_") for found in items if found is not mine]
    assert stems == [
        "plumbing",
        "needle_sweep",
        "twins_cache",
        "long_generation",
        "abort_then_followup",
    ]
