"""Attention, its output, and the indexer, on numbers small enough for a pencil."""

import math

import pytest
import torch

from reference.attention import grouped_output, sparse_attention
from reference.indexer import index_scores, is_tied, select, visible_entries

NO_SINK = torch.tensor([-torch.inf])
LOG2, LOG3 = math.log(2.0), math.log(3.0)


def attend(q, kv, entries=None, selected=None, sinks=NO_SINK, **options) -> torch.Tensor:
    settings = {"window": 2, "m": 2, "scale": 1.0} | options
    settings.setdefault("positions", torch.arange(q.shape[0]) + kv.shape[0] - q.shape[0])
    return sparse_attention(q, kv, entries, selected, sinks, **settings)


def near(ours: torch.Tensor, wanted) -> None:
    torch.testing.assert_close(ours, torch.as_tensor(wanted, dtype=ours.dtype))


class TestWindow:
    """Keys (key, value) with a query (1, 0): the second channel shows who was read."""

    q = torch.tensor([[[1.0, 0.0]]])

    def test_a_token_reads_itself_and_the_window_before(self) -> None:
        kv = torch.tensor([[9.0, 9.0], [0.0, 10.0], [LOG3, 20.0]])
        near(attend(self.q, kv)[0, 0, 1], 0.25 * 10 + 0.75 * 20)
        near(attend(self.q, kv, window=1)[0, 0, 1], 20.0)

    def test_the_first_token_reads_itself(self) -> None:
        kv = torch.tensor([[5.0, 10.0], [0.0, 20.0]])
        near(attend(self.q, kv, positions=torch.tensor([0]))[0, 0], [5.0, 10.0])

    def test_scale_multiplies_keys_and_not_the_sink(self) -> None:
        kv = torch.tensor([[0.0, 8.0], [LOG3 * 2, 16.0]])
        out = attend(self.q, kv, sinks=torch.tensor([LOG2 * 2]), scale=0.5)
        near(out[0, 0, 1], (1 * 8 + 3 * 16 + 4 * 0) / (1 + 3 + 4))

    def test_each_head_has_its_own_sink(self) -> None:
        kv = torch.tensor([[0.0, 12.0]])
        q = torch.zeros(1, 2, 2)
        near(attend(q, kv, sinks=torch.tensor([LOG2, LOG3]))[0, :, 1], [12 / 3, 12 / 4])

    def test_a_sink_far_above_the_keys_does_not_overflow(self) -> None:
        out = attend(self.q, torch.tensor([[0.0, 12.0]]), sinks=torch.tensor([1e4]))
        near(out, [[[0.0, 0.0]]])

    def test_rows_that_a_token_does_not_see_may_hold_anything(self) -> None:
        kv = torch.tensor([[torch.nan] * 2, [0.0, 1.0], [0.0, 3.0], [torch.nan] * 2])
        out = attend(self.q, kv, positions=torch.tensor([2]))
        near(out[0, 0, 1], 2.0)


class TestEntries:
    q = torch.tensor([[[1.0, 0.0]]])
    kv = torch.zeros(6, 2)
    entries = torch.tensor([[LOG2, 10.0], [LOG2, 100.0], [LOG2, 1000.0]])

    def test_the_window_that_ends_at_the_token_is_visible(self) -> None:
        for position, seen in enumerate([0, 10, 10, 110, 110, 1110]):
            out = attend(self.q, self.kv, self.entries, positions=torch.tensor([position]))
            count, rows = (position + 1) // 2, min(position + 1, 2)
            near(out[0, 0, 1], 2 * seen / (2 * count + rows))

    def test_selected_entries_only(self) -> None:
        out = attend(self.q, self.kv, self.entries, torch.tensor([[2, -1, 0]]))
        near(out[0, 0, 1], 2 * 1010 / (4 + 2))

    def test_a_selected_entry_of_the_future_is_ignored(self) -> None:
        out = attend(
            self.q, self.kv, self.entries, torch.tensor([[0, 2]]), positions=torch.tensor([4])
        )
        near(out[0, 0, 1], 2 * 10 / (2 + 2))

    def test_none_selected_is_not_all(self) -> None:
        near(attend(self.q, self.kv, self.entries, torch.tensor([[-1, -1]]))[0, 0, 1], 0.0)

    def test_refuses_what_is_not_there(self) -> None:
        with pytest.raises(ValueError, match="selected: entry 3"):
            attend(self.q, self.kv, self.entries, torch.tensor([[3]]))
        with pytest.raises(ValueError, match="positions: up to 6"):
            attend(self.q, self.kv, positions=torch.tensor([6]))
        with pytest.raises(ValueError, match="m: None"):
            attend(self.q, self.kv, self.entries, m=None)
        with pytest.raises(ValueError, match="window: 0"):
            attend(self.q, self.kv, window=0)


class TestGroupedOutput:
    def test_neighbouring_heads_share_a_group(self) -> None:
        o = torch.tensor([[[1.0], [2.0], [3.0], [4.0]]])  # 4 heads of one channel, 2 groups
        w_a = torch.tensor([[1.0, 10.0], [100.0, 1000.0]])  # one row a group
        w_b = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        near(grouped_output(o, w_a, w_b, groups=2), [[21.0, 4300.0, 4321.0]])

    def test_refuses_groups_that_do_not_divide(self) -> None:
        with pytest.raises(ValueError, match="groups: 3"):
            grouped_output(torch.ones(1, 4, 1), torch.ones(2, 2), torch.ones(3, 2), groups=3)


class TestIndexer:
    def test_scores_weigh_the_relu_of_each_head(self) -> None:
        q = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        keys = torch.tensor([[2.0, 3.0], [-2.0, 3.0], [-1.0, -1.0]])
        near(index_scores(q, keys, torch.tensor([[10.0, -1.0]])), [[17.0, -3.0, 0.0]])

    def test_many_rows_are_scored_alike(self) -> None:
        q, keys, weights = torch.randn(600, 3, 4), torch.randn(9, 4), torch.randn(600, 3)
        one = torch.cat([index_scores(q[i : i + 1], keys, weights[i : i + 1]) for i in range(600)])
        near(index_scores(q, keys, weights), one)

    def test_visibility(self) -> None:
        assert visible_entries(torch.arange(9), 4).tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2]

    def select(self, scores, visible=None, topk=2) -> list[int]:
        row = torch.tensor([scores])
        return select(row, torch.tensor([visible or len(scores)]), topk)[0].tolist()

    def test_best_first_then_lowest_index(self) -> None:
        assert self.select([1.0, 3.0, 2.0]) == [1, 2]
        assert self.select([0.0, 0.0, 0.0]) == [0, 1]
        assert self.select([0.0, 1.0, -0.0]) == [0, 1]
        assert self.select([-1.0, 0.0, 0.0, 0.0]) == [1, 2]

    def test_hidden_entries_are_never_chosen(self) -> None:
        assert self.select([1.0, 0.5, 9.0], visible=2) == [0, 1]
        assert self.select([-5.0, 9.0, 9.0], visible=1) == [0, -1]

    def test_fewer_entries_than_asked_for(self) -> None:
        assert self.select([1.0, 2.0], topk=4) == [0, 1, -1, -1]
        assert select(torch.ones(1, 0), torch.tensor([0]), 3).tolist() == [[-1, -1, -1]]

    def test_nan_ranks_below_every_number(self) -> None:
        nan, inf = torch.nan, torch.inf
        assert self.select([nan, -1e30, inf, 0.0]) == [2, 3]
        assert self.select([nan, -1e30, nan]) == [0, 1]

    def test_ties_at_the_edge_are_told(self) -> None:
        scores = torch.tensor([[2.0, 1.0, 1.0], [1.0, 1.0, 0.0], [2.0, 1.0, 1.0]])
        assert is_tied(scores, torch.tensor([3, 3, 2]), 2).tolist() == [True, False, False]

    def test_refuses(self) -> None:
        with pytest.raises(ValueError, match="topk: 0"):
            self.select([1.0], topk=0)
        with pytest.raises(ValueError, match="visible: 3 entries; accepted: at most the 1 scored"):
            self.select([1.0], visible=3)
