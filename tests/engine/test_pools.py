"""Paged storage and who owns a page."""

import pytest
import torch

from engine.errors import ConfigError
from engine.pools import OutOfPages
from engine.sequence import SamplingParams

GREEDY = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
PROMPT = torch.randint(2, 199, (200,), generator=torch.Generator().manual_seed(6)).tolist()


@pytest.fixture
def engine(make_engine):
    return make_engine(max_total_tokens=64 * 8)


def test_each_kind_of_layer_has_the_state_that_it_needs(engine) -> None:
    a, pools = engine.architecture, engine.pools
    hca, csa, sliding = (pools.layers[layer] for layer in (0, 1, 2))
    assert sliding.window.shape == csa.window.shape == (8, 64, a.head_dim)
    assert (sliding.entries, sliding.ring, sliding.index_keys) == (None, None, None)
    assert hca.entries.shape == (8, 4, a.head_dim)
    assert hca.ring.shape == (8, 16, 2 * a.head_dim)
    assert csa.entries.shape == (8, 16, a.head_dim)
    assert csa.ring.shape == (8, 8, 4 * a.head_dim)
    assert csa.index_ring.shape == (8, 8, 4 * a.index_head_dim)
    assert hca.index_ring is None


def test_all_state_is_paged(engine) -> None:
    tensors = engine.pools.page_tensors()
    assert {t.shape[0] for t in tensors} == {8}
    # window x5; entries and ring x4; keys and their ring x2
    assert len(tensors) == 5 + 4 + 4 + 2 + 2


def test_no_more_pages_than_there_are(engine) -> None:
    pages = engine.pools.allocate(8)
    assert sorted(pages) == list(range(8))
    with pytest.raises(OutOfPages, match="1 pages wanted, 0 are free"):
        engine.pools.allocate(1)
    engine.pools.free(pages)
    assert engine.pools.num_free_pages == 8


def test_a_page_freed_twice_is_seen(engine) -> None:
    pages = engine.pools.allocate(2)
    engine.pools.free([*pages, pages[0]])
    with pytest.raises(AssertionError, match="a page is free twice"):
        engine.pools.check_integrity()


def test_a_page_without_owner_is_seen(engine) -> None:
    engine.pools.allocate(1)
    with pytest.raises(AssertionError, match="a page has no owner or two"):
        engine.scheduler.check_integrity()


def test_a_page_with_two_owners_is_seen(engine) -> None:
    engine.generate([PROMPT], GREEDY)
    engine.pools.free([engine.prefix_tree.owned_pages()[0]])
    with pytest.raises(AssertionError, match="a page has no owner or two"):
        engine.scheduler.check_integrity()


def test_a_lock_without_reader_is_seen(engine) -> None:
    engine.generate([PROMPT], GREEDY)
    engine.prefix_tree.lock(engine.prefix_tree.match_prefix(PROMPT).node)
    with pytest.raises(AssertionError, match="locks and readers differ"):
        engine.scheduler.check_integrity()


def test_pages_are_evicted_only_when_needed(engine) -> None:
    for start in range(0, 190, 20):
        engine.generate([PROMPT[start:] + PROMPT[:start]], GREEDY)
        engine.scheduler.check_integrity()
    assert engine.prefix_tree.num_pages >= 5
    # The one asked last is still known, the first one is not.
    assert engine.prefix_tree.match_prefix(PROMPT[180:] + PROMPT[:180]).num_tokens == 192
    assert engine.prefix_tree.match_prefix(PROMPT).num_tokens == 0


def test_without_a_prefix_cache_nothing_is_kept(make_engine) -> None:
    engine = make_engine(disable_prefix_cache=True)
    for _ in range(2):
        (outputs,) = engine.generate([PROMPT], GREEDY)
        assert outputs[-1].cached_tokens == 0
    assert engine.prefix_tree.num_pages == 0
    assert engine.pools.num_free_pages == engine.pools.num_pages


def test_a_page_must_hold_whole_windows(make_engine) -> None:
    with pytest.raises(ConfigError, match="--page-size is 40, but must be a multiple of 16"):
        make_engine(page_size=40)


@pytest.mark.parametrize("page_size", [16, 32, 128])
def test_any_whole_page_size_computes_the_same(make_engine, driver, page_size) -> None:
    expected = driver(make_engine()).logits(PROMPT)
    logits = driver(make_engine(page_size=page_size)).logits(PROMPT, chunk=77)
    assert torch.allclose(logits, expected, atol=2e-4)
