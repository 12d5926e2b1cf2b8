"""Who owns which page: the free list, one sequence, or the prefix tree. Never two of them.

All moves of pages between the three are here, so that an abort, a retraction and a normal end
cannot differ by accident.
"""

from typing import TYPE_CHECKING

from engine.sequence import FinishReason, Sequence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.core import Engine


class PageOwnership:
    """Moves pages for the scheduler. Not thread-safe: the scheduler's lock guards it."""

    def __init__(self, engine: "Engine", *, page_size: int, use_prefix_cache: bool) -> None:
        self.engine = engine
        self.page_size = page_size
        self.use_prefix_cache = use_prefix_cache

    def pages_for(self, num_tokens: int) -> int:
        """Pages that so many tokens fill or begin."""
        return -(-num_tokens // self.page_size)

    @property
    def num_available_pages(self) -> int:
        """Pages that are free now or would be after evicting the whole unlocked tree."""
        return self.engine.pools.num_free_pages + self.engine.prefix_tree.num_evictable_pages

    def admit(self, sequence: Sequence, *, reserve_pages: int) -> bool:
        """Give a waiting sequence the cached pages of its prefix and fresh ones for the rest.

        At least one token stays to be computed, since its logits are needed. A request for prompt
        logprobs reads no cached page.

        Args:
            sequence: without pages.
            reserve_pages: pages to leave available for the sequences that run already.

        Returns: False, with nothing changed, when too few pages are available.
        """
        tree, wanted = self.engine.prefix_tree, self.pages_for(len(sequence.token_ids))
        match = tree.match_prefix(self.cacheable_tokens(sequence))
        tree.lock(match.node)
        if wanted - len(match.pages) + reserve_pages > self.num_available_pages:
            tree.unlock(match.node)
            return False
        sequence.node = match.node
        sequence.pages = list(match.pages)
        sequence.num_shared_pages = len(match.pages)
        sequence.num_computed = match.num_tokens
        if sequence.cached_tokens is None:
            sequence.cached_tokens = min(match.num_tokens, sequence.prompt_tokens)
        sequence.pages += self.take(wanted - len(match.pages))
        return True

    def cacheable_tokens(self, sequence: Sequence) -> list[int]:
        """Tokens that may be looked up in the prefix cache for that sequence."""
        if not self.use_prefix_cache or sequence.sampling.prompt_logprobs is not None:
            return []
        return sequence.token_ids[:-1]

    def grow(self, sequence: Sequence) -> bool:
        """Make room for every token of a running sequence; False when no page can be had."""
        missing = self.pages_for(len(sequence.token_ids)) - len(sequence.pages)
        if missing > self.num_available_pages:
            return False
        if missing > 0:
            sequence.pages += self.take(missing)
        return True

    def take(self, num_pages: int) -> list[int]:
        """Allocate, evicting from the prefix tree what is missing."""
        short = num_pages - self.engine.pools.num_free_pages
        if short > 0:
            self.engine.prefix_tree.evict(short)
        return self.engine.pools.allocate(num_pages)

    def publish(self, sequence: Sequence) -> None:
        """Hand the full, computed pages of a sequence to the prefix tree and go on reading them.

        A page is full when all its tokens are computed; what lies beyond is never handed over.
        Where the tree knew the same tokens already, the sequence reads the tree's page from now on
        and its own copy is freed.
        """
        full = sequence.num_computed // self.page_size
        if not self.use_prefix_cache or full <= sequence.num_shared_pages:
            return
        tree = self.engine.prefix_tree
        mine = sequence.pages[:full]
        chain = tree.insert(sequence.token_ids[: full * self.page_size], mine)
        tree.lock(chain.node)
        if sequence.node is not None:
            tree.unlock(sequence.node)
        sequence.node = chain.node
        sequence.pages[:full] = chain.pages
        sequence.num_shared_pages = full
        owned = zip(mine, chain.pages, strict=True)
        self.engine.pools.free([page for page, kept in owned if page != kept])

    def release(self, sequence: Sequence, reason: FinishReason | None) -> None:
        """Take every page away from a sequence; full computed ones stay known in the tree.

        Args:
            sequence: running; its `num_computed` is 0 afterwards.
            reason: why it ends; None for a retraction. After "error" nothing is published, since
                nobody knows what was written.
        """
        if reason != "error":
            self.publish(sequence)
        self.engine.pools.free(sequence.pages[sequence.num_shared_pages :])
        if sequence.node is not None:
            self.engine.prefix_tree.unlock(sequence.node)
        sequence.pages = []
        sequence.num_shared_pages = 0
        sequence.node = None
        sequence.num_computed = 0

    def check_integrity(self, running: "Iterable[Sequence]") -> None:
        """Raise AssertionError unless every page has exactly one owner.

        Args:
            running: all sequences that hold pages.
        """
        self.engine.pools.check_integrity()
        self.engine.prefix_tree.check_integrity()
        tree = self.engine.prefix_tree.owned_pages()
        owned = self.engine.pools.free_pages() + tree
        known, locks = set(tree), 0
        for sequence in running:
            shared = sequence.pages[: sequence.num_shared_pages]
            owned += sequence.pages[sequence.num_shared_pages :]
            locks += len(shared)
            _check(set(shared) <= known, f"{sequence.request_id} shares a page not in the tree")
            _check(sequence.num_computed <= len(sequence.token_ids), "more computed than known")
            _check(
                len(sequence.pages) >= self.pages_for(sequence.num_computed),
                f"{sequence.request_id} has fewer pages than computed tokens",
            )
        _check(
            sorted(owned) == list(range(self.engine.pools.num_pages)), "a page has no owner or two"
        )
        _check(locks == sum(self.engine.prefix_tree.lock_counts()), "locks and readers differ")


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(f"pages: {what}")
