"""A new conversation takes an evicted page for its own first page, with what stood in it.

The look-up of a saved prompt reports success although nothing fits, so the step that clears the
evicted place is skipped: the first page of the newcomer counts as computed, and holds the victim's
state. The usage says that nothing was cached.
"""

from typing import Any

from engine.sequence import Sequence

NAME = "evicted_page_not_cleared"
KIND = "prefix"
RUNG = "structural"
REPORT = "https://github.com/ggml-org/llama.cpp/issues/27148"
TRIGGER = (
    "a request of more than one page whose beginning nobody knows is admitted, and cached pages "
    "have to be evicted for it"
)
PATCH = None
SUITES = {"test_stateful"}
LAUNCH = ("--max-total-tokens=4096",)


def install(engine: Any) -> None:
    """Wrap `ownership.admit` and `prefix_tree.evict`."""
    places = _Places(engine)
    engine.ownership.admit = places.admit
    engine.prefix_tree.evict = places.evict


class _Places:
    """Knows whether the admission in progress evicted something."""

    def __init__(self, engine: Any) -> None:
        self.page_size: int = engine.prefix_tree.page_size
        self._admit = engine.ownership.admit
        self._evict = engine.prefix_tree.evict
        self._evicted = 0

    def evict(self, num_pages: int) -> int:
        """Count."""
        freed: int = self._evict(num_pages)
        self._evicted += freed
        return freed

    def admit(self, sequence: Sequence, *, reserve_pages: int) -> bool:
        """Skip the first page of a newcomer that was given a victim's."""
        self._evicted = 0
        admitted: bool = self._admit(sequence, reserve_pages=reserve_pages)
        if (
            admitted
            and self._evicted
            and sequence.num_computed == 0
            and sequence.retractions == 0
            and len(sequence.token_ids) > self.page_size
        ):
            sequence.num_computed = self.page_size
        return admitted
