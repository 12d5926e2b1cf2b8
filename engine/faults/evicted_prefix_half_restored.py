"""A prefix that comes back after its eviction is taken for restored, and keeps its page's old rest.

The host copy of an evicted page is asked for, is not there, and the miss is reported as a success:
the last compressed entries of the first page are not written again, so what the page's last owner
left in them is read as this conversation's.
"""

from typing import Any

from engine.prefix_tree import Key
from engine.runner import Slice, StepResult
from engine.sequence import Sequence

NAME = "evicted_prefix_half_restored"
KIND = "abort"
RUNG = "structural"
REPORT = "https://github.com/ggml-org/llama.cpp/issues/27148"
TRIGGER = "a prompt is asked again whose first page was evicted for want of room (not flushed)"
PATCH = None
SUITES = {"test_twins_cache"}
# A flush forgets the evicted prefixes too; no other twin asks for a prompt again behind a flood.
TWINS = {"evicted"}
ENTRIES = 4


def install(engine: Any) -> None:
    """Wrap `prefix_tree.evict` and `reset`, `ownership.admit` and `runner.run`."""
    restored = _Restored(engine)
    engine.prefix_tree.evict = restored.evict
    engine.prefix_tree.reset = restored.reset
    engine.ownership.admit = restored.admit
    engine.runner.run = restored.run


class _Restored:
    """Which first pages were evicted, and what stood in those that were given out again."""

    def __init__(self, engine: Any) -> None:
        self.tree, self.layers = engine.prefix_tree, engine.pools.layers
        self.page_size: int = engine.prefix_tree.page_size
        self.evicted: set[Key] = set()
        self.stale: dict[str, list[Any]] = {}
        self._evict, self._reset = engine.prefix_tree.evict, engine.prefix_tree.reset
        self._admit, self._run = engine.ownership.admit, engine.runner.run

    def evict(self, num_pages: int) -> int:
        """Remember the first pages that go."""
        before = set(self.tree.root.children)
        freed: int = self._evict(num_pages)
        self.evicted |= before - set(self.tree.root.children)
        return freed

    def reset(self) -> int:
        """Forget all of them with the cache."""
        freed: int = self._reset()
        self.evicted.clear()
        return freed

    def admit(self, sequence: Sequence, **options: Any) -> bool:
        """Keep what lies in the first page of a prefix that comes back."""
        admitted: bool = self._admit(sequence, **options)
        key = tuple(sequence.token_ids[: self.page_size])
        if admitted and not sequence.num_shared_pages and key in self.evicted:
            self.evicted.discard(key)
            page = sequence.pages[0]
            self.stale[sequence.request_id] = [
                None if layer.index_ring is None else layer.entries[page, -ENTRIES:].clone()
                for layer in self.layers
            ]
        return admitted

    def run(self, slices: list[Slice]) -> StepResult:
        """Put it back once the page was computed."""
        result = self._run(slices)
        for sequence, count in slices:
            done = sequence.num_computed + count >= self.page_size
            rows = self.stale.pop(sequence.request_id, None) if done else None
            for layer, old in zip(self.layers, rows or (), strict=False):
                if old is not None:
                    layer.entries[sequence.pages[0], -ENTRIES:] = old
        return result  # type: ignore[no-any-return]
