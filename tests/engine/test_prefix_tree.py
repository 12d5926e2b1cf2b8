"""The prefix tree against a dict of token prefixes."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.prefix_tree import PrefixTree

PAGE = 2


class FakePools:
    def __init__(self) -> None:
        self.freed: list[int] = []

    def free(self, pages) -> None:
        self.freed.extend(pages)


class FakeEngine:
    def __init__(self) -> None:
        self.pools = FakePools()


@pytest.fixture
def tree() -> PrefixTree:
    return PrefixTree(FakeEngine(), page_size=PAGE)


def test_a_match_is_made_of_full_pages_only(tree) -> None:
    tree.insert([1, 2, 3, 4], [10, 11])
    assert tree.match_prefix([1, 2, 3]).pages == [10]
    assert tree.match_prefix([1, 2, 3, 4, 5]).pages == [10, 11]
    assert tree.match_prefix([1]).num_tokens == 0


def test_a_page_is_known_by_all_tokens_before_it_too(tree) -> None:
    tree.insert([1, 2, 3, 4], [10, 11])
    tree.insert([5, 6, 3, 4], [12, 13])
    assert tree.match_prefix([5, 6, 3, 4]).pages == [12, 13]
    assert tree.match_prefix([3, 4]).pages == []


def test_inserting_a_known_prefix_keeps_the_first_page_and_says_so(tree) -> None:
    tree.insert([1, 2, 3, 4], [10, 11])
    again = tree.insert([1, 2, 3, 4, 5, 6], [20, 21, 22])
    assert again.pages == [10, 11, 22]
    assert sorted(tree.owned_pages()) == [10, 11, 22]


def test_tokens_beyond_the_given_pages_are_not_made_known(tree) -> None:
    tree.insert([1, 2, 3, 4], [10])
    assert tree.match_prefix([1, 2, 3, 4]).pages == [10]


def test_eviction_takes_the_least_recently_used_leaf_first(tree) -> None:
    tree.insert([1, 2], [10])
    tree.insert([3, 4], [11])
    tree.match_prefix([1, 2])
    assert tree.evict(1) == 1
    assert tree.engine.pools.freed == [11]


def test_eviction_works_upwards_and_never_leaves_an_orphan(tree) -> None:
    tree.insert([1, 2, 3, 4, 5, 6], [10, 11, 12])
    assert tree.evict(2) == 2
    assert tree.engine.pools.freed == [12, 11]
    assert tree.match_prefix([1, 2, 3, 4]).pages == [10]


def test_a_locked_chain_survives_any_eviction(tree) -> None:
    tree.insert([1, 2, 3, 4], [10, 11])
    middle = tree.match_prefix([1, 2]).node
    tree.lock(middle)
    assert tree.evict(99) == 1
    assert tree.engine.pools.freed == [11]
    tree.unlock(middle)
    assert tree.evict(99) == 1
    assert tree.num_pages == 0


def test_integrity_check_sees_a_page_that_is_listed_twice(tree) -> None:
    tree.insert([1, 2], [10])
    tree.insert([3, 4], [10])
    with pytest.raises(AssertionError, match="page 10 is in the tree twice"):
        tree.check_integrity()


def test_integrity_check_sees_a_lost_lock(tree) -> None:
    tree.insert([1, 2, 3, 4], [10, 11])
    node = tree.match_prefix([1, 2, 3, 4]).node
    tree.lock(node)
    node.parent.lock_count = 0
    with pytest.raises(AssertionError, match="page 10 is less locked than its children"):
        tree.check_integrity()


TOKENS = st.lists(st.integers(0, 2), min_size=0, max_size=9)


class PrefixTreeMachine(RuleBasedStateMachine):
    """The model: which token prefix has which page, and which prefixes are locked how often."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = PrefixTree(FakeEngine(), page_size=PAGE)
        self.known: dict[tuple[int, ...], int] = {}
        self.locked: list = []
        self.next_page = 0

    def prefixes(self, tokens: list[int]) -> list[tuple[int, ...]]:
        return [tuple(tokens[:n]) for n in range(PAGE, len(tokens) + 1, PAGE)]

    @rule(tokens=TOKENS)
    def insert(self, tokens) -> None:
        prefixes = self.prefixes(tokens)
        mine = list(range(self.next_page, self.next_page + len(prefixes)))
        self.next_page += len(prefixes)
        expected = [self.known.setdefault(p, page) for p, page in zip(prefixes, mine, strict=True)]
        assert self.tree.insert(tokens, mine).pages == expected

    @rule(tokens=TOKENS)
    def match(self, tokens) -> None:
        expected = []
        for prefix in self.prefixes(tokens):
            if prefix not in self.known:
                break
            expected.append(self.known[prefix])
        assert self.tree.match_prefix(tokens).pages == expected

    @rule(tokens=TOKENS)
    def lock(self, tokens) -> None:
        match = self.tree.match_prefix(tokens)
        self.tree.lock(match.node)
        self.locked.append((match.node, match.pages))

    @precondition(lambda self: self.locked)
    @rule(data=st.data())
    def unlock(self, data) -> None:
        at = data.draw(st.integers(0, len(self.locked) - 1))
        self.tree.unlock(self.locked.pop(at)[0])

    @rule(count=st.integers(0, 6))
    def evict(self, count) -> None:
        keep = {page for _, pages in self.locked for page in pages}
        evictable = len(set(self.known.values()) - keep)
        assert self.tree.num_evictable_pages == evictable
        assert self.tree.evict(count) == min(count, evictable)
        freed, self.tree.engine.pools.freed = set(self.tree.engine.pools.freed), []
        assert not freed & keep
        self.known = {p: page for p, page in self.known.items() if page not in freed}

    @invariant()
    def holds_together(self) -> None:
        self.tree.check_integrity()
        assert sorted(self.tree.owned_pages()) == sorted(self.known.values())


PrefixTreeMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
TestPrefixTreeMachine = PrefixTreeMachine.TestCase
