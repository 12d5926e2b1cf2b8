"""Which full pages are known by the tokens that they hold.

A radix tree with one page an edge: a node is one page, reached by the tokens of all pages above it
and its own. Tokens are compared, never only hashed. The tree owns the pages of its nodes; a locked
node, and so every node above it, is never evicted.
"""

import heapq
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.core import Engine

Key = tuple[int, ...]


class Node:
    """One full page. `page` is -1 at the root, which holds none."""

    __slots__ = ("children", "key", "last_access", "lock_count", "page", "parent")

    def __init__(self, parent: "Node | None", key: Key, page: int) -> None:
        self.parent = parent
        self.key = key
        self.page = page
        self.children: dict[Key, Node] = {}
        self.lock_count = 0
        self.last_access = 0


class PrefixMatch(NamedTuple):
    """The longest known prefix. `node` is the root when nothing matched."""

    node: Node
    pages: list[int]
    num_tokens: int


class PrefixTree:
    """Find, add, lock and evict cached prefixes. Not thread-safe: the scheduler's lock guards it.

    Freed pages go back to `engine.pools`.
    """

    def __init__(self, engine: "Engine", *, page_size: int) -> None:
        self.engine = engine
        self.page_size = page_size
        self.root = Node(None, (), -1)
        self.num_pages = 0
        """Pages that the tree owns."""
        self.num_locked_pages = 0
        """Of these, how many cannot be evicted now."""
        self._clock = itertools.count(1)

    def match_prefix(self, token_ids: list[int]) -> PrefixMatch:
        """Return the longest chain of full pages that holds exactly the first tokens.

        Marks the chain as just used. Locks nothing: lock the node before anything may evict.
        """
        node, pages, now = self.root, [], next(self._clock)
        for key in self._keys(token_ids):
            child = node.children.get(key)
            if child is None:
                break
            child.last_access = now
            pages.append(child.page)
            node = child
        return PrefixMatch(node, pages, len(pages) * self.page_size)

    def insert(self, token_ids: list[int], pages: list[int]) -> PrefixMatch:
        """Make full pages known; the tree owns those that it did not know.

        Args:
            token_ids: at least `len(pages) * page_size` tokens, all computed.
            pages: one page for each `page_size` tokens.

        Returns:
            The chain as the tree has it. Where its page differs from the one given, the prefix was
            known already: the given page stays the caller's, who should read the tree's instead
            and free its own.
        """
        node, chain, now = self.root, [], next(self._clock)
        for key, page in zip(self._keys(token_ids), pages, strict=False):
            child = node.children.get(key)
            if child is None:
                child = Node(node, key, page)
                node.children[key] = child
                self.num_pages += 1
            child.last_access = now
            chain.append(child.page)
            node = child
        return PrefixMatch(node, chain, len(chain) * self.page_size)

    def lock(self, node: Node) -> None:
        """Keep a node and everything above it."""
        while node.parent is not None:
            self.num_locked_pages += node.lock_count == 0
            node.lock_count += 1
            node = node.parent

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        while node.parent is not None:
            node.lock_count -= 1
            self.num_locked_pages -= node.lock_count == 0
            node = node.parent

    @property
    def num_evictable_pages(self) -> int:
        """Pages that `evict` could give back now."""
        return self.num_pages - self.num_locked_pages

    def evict(self, num_pages: int) -> int:
        """Free at least that many pages if so many are unlocked, least recently used first.

        Returns: how many were freed.
        """
        order = itertools.count()
        leaves = [(n.last_access, next(order), n) for n in self._nodes() if _evictable(n)]
        heapq.heapify(leaves)
        freed: list[int] = []
        while leaves and len(freed) < num_pages:
            node = heapq.heappop(leaves)[2]
            freed.append(self._remove(node))
            parent = node.parent
            if parent is not None and parent.parent is not None and _evictable(parent):
                heapq.heappush(leaves, (parent.last_access, next(order), parent))
        self.engine.pools.free(freed)
        return len(freed)

    def reset(self) -> int:
        """Forget everything that is not locked; return the number of pages freed."""
        return self.evict(self.num_pages)

    def _remove(self, node: Node) -> int:
        if node.parent is not None:
            del node.parent.children[node.key]
        self.num_pages -= 1
        return node.page

    def _keys(self, token_ids: list[int]) -> Iterator[Key]:
        size = self.page_size
        for start in range(0, len(token_ids) - size + 1, size):
            yield tuple(token_ids[start : start + size])

    def _nodes(self) -> Iterator[Node]:
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            yield node

    def owned_pages(self) -> list[int]:
        """Every page that the tree owns."""
        return [node.page for node in self._nodes()]

    def lock_counts(self) -> list[int]:
        """How often each page is locked."""
        return [node.lock_count for node in self._nodes()]

    def check_integrity(self) -> None:
        """Raise AssertionError, in words, when an invariant is broken."""
        pages, locked = set(), 0
        for node in self._nodes():
            _check(node.parent is not None, f"page {node.page} has no parent")
            _check(len(node.key) == self.page_size, f"page {node.page} is not full")
            _check(node.page not in pages, f"page {node.page} is in the tree twice")
            _check(node.lock_count >= 0, f"page {node.page} was unlocked too often")
            below = sum(child.lock_count for child in node.children.values())
            _check(node.lock_count >= below, f"page {node.page} is less locked than its children")
            pages.add(node.page)
            locked += node.lock_count > 0
        _check(len(pages) == self.num_pages, f"{len(pages)} pages, but counted {self.num_pages}")
        _check(
            locked == self.num_locked_pages,
            f"{locked} locked pages, but counted {self.num_locked_pages}",
        )


def _evictable(node: Node) -> bool:
    return node.lock_count == 0 and not node.children


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(f"prefix tree: {what}")
