"""Each operation on numbers small enough for a pencil."""

import math

import pytest
import torch

from reference.compressor import csa_entries, hca_entries
from reference.experts import expert, routed_experts, swiglu
from reference.hadamard import hadamard_matrix, hadamard_rotate
from reference.mhc import mhc_head, mhc_mix, mhc_post, mhc_pre, sinkhorn
from reference.rmsnorm import rms_norm
from reference.rope import Yarn, frequencies, rotate
from reference.routing import route_hashed, route_learned, route_selected, router_scores

STILL = torch.zeros(1, dtype=torch.float64)  # one pair that never turns


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def near(ours: torch.Tensor, wanted) -> None:
    torch.testing.assert_close(ours, torch.as_tensor(wanted, dtype=ours.dtype))


def logit(p: float) -> float:
    return math.log(p / (1 - p))


class TestRmsNorm:
    def test_divides_by_the_root_of_the_mean_square_and_eps(self) -> None:
        near(rms_norm(vector(3.0, 1.0), None, 4.0), [1.0, 1 / 3])
        near(rms_norm(vector(3.0, 1.0), vector(2.0, -3.0), 4.0), [2.0, -1.0])

    def test_is_wide(self) -> None:
        assert rms_norm(torch.ones(2, dtype=torch.bfloat16), None, 0.0).dtype == torch.float32
        assert rms_norm(torch.ones(2, dtype=torch.float64), None, 0.0).dtype == torch.float64

    def test_refuses_another_weight(self) -> None:
        with pytest.raises(ValueError, match=r"weight: shape \(3,\); accepted: \(2\)"):
            rms_norm(torch.ones(5, 2), torch.ones(3), 0.0)


class TestRope:
    def test_plain_frequencies(self) -> None:
        near(frequencies(16.0, 4), [1.0, 0.25])

    def test_yarn_keeps_fast_pairs_divides_slow_ones_and_blends_between(self) -> None:
        # theta = 4^4: pair i turns L / (2 pi 4^i) times over L. With L = 2 pi 4^4 pair i turns
        # 4^(4 - i) times, so beta_fast = 64 is pair 1, and beta_slow = 4 is pair 3.
        yarn = Yarn(factor=2.0, original_max_position=1608, beta_fast=64.0, beta_slow=4.0)
        # 1608 is 2 pi 256 minus .5: pair(64) is just below 1 and pair(4) just below 3, so floor
        # gives 0 and ceil gives 3: ramp = 0, 1/3, 2/3, 1.
        plain = torch.tensor([1.0, 4.0**-1, 4.0**-2, 4.0**-3], dtype=torch.float64)
        ramp = torch.tensor([0.0, 1 / 3, 2 / 3, 1.0], dtype=torch.float64)
        near(frequencies(256.0, 8, yarn), plain * (1 - ramp / 2))

    def test_yarn_clamps_the_upper_end_by_the_rope_width(self) -> None:
        # Pair(1) is far above: clamped to R - 1 = 3, so the last pair (1) has a ramp of 1/3 only.
        yarn = Yarn(factor=4.0, original_max_position=10**9, beta_fast=10**9, beta_slow=1.0)
        near(frequencies(10.0, 4, yarn)[1], 10**-0.5 * (1 - 3 / 4 / 3))

    def test_yarn_with_both_ends_at_one_pair_is_a_step(self) -> None:
        # Over 5 positions no pair turns once: both ends are clamped to pair 0.
        plain = torch.tensor([1.0, 4.0**-1, 4.0**-2, 4.0**-3], dtype=torch.float64)
        step = torch.tensor([1.0, 0.5, 0.5, 0.5], dtype=torch.float64)
        near(frequencies(256.0, 8, Yarn(factor=2.0, original_max_position=5)), plain * step)

    def test_a_pair_turns_by_position_times_frequency(self) -> None:
        quarter = torch.tensor([math.pi / 2], dtype=torch.float64)
        x = torch.tensor([[5.0, 1.0, 0.0], [5.0, 1.0, 0.0], [5.0, 1.0, 0.0]])
        turned = rotate(x, torch.tensor([0, 1, 2]), quarter)
        near(turned, [[5.0, 1.0, 0.0], [5.0, 0.0, 1.0], [5.0, -1.0, 0.0]])

    def test_pairs_are_neighbours_and_each_has_its_own_angle(self) -> None:
        freqs = torch.tensor([math.pi / 2, math.pi], dtype=torch.float64)
        near(rotate(vector(1, 2, 3, 4)[None], torch.tensor([1]), freqs), [[-2.0, 1.0, -3.0, -4.0]])

    def test_inverse_turns_back_for_each_head(self) -> None:
        x = torch.randn(7, 3, 10, dtype=torch.float64)
        freqs, positions = frequencies(10000.0, 6), torch.arange(7) * 100_003
        near(rotate(rotate(x, positions, freqs), positions, freqs, inverse=True), x)

    @pytest.mark.parametrize("rope_dim", [0, 3, -2])
    def test_refuses_odd_widths(self, rope_dim) -> None:
        with pytest.raises(ValueError, match="rope_dim"):
            frequencies(10.0, rope_dim)

    def test_refuses_what_does_not_fit(self) -> None:
        with pytest.raises(ValueError, match="theta"):
            frequencies(1.0, 2)
        with pytest.raises(ValueError, match="at least the 4 rotated"):
            rotate(torch.ones(1, 3), torch.tensor([0]), frequencies(10.0, 4))
        with pytest.raises(ValueError, match="positions"):
            rotate(torch.ones(2, 4), torch.tensor([0]), frequencies(10.0, 4))


class TestHyperConnections:
    """Two streams; fn is zero, so that gates and mixture come from `base` alone."""

    def pre(self, base, **options):
        settings = {"rms_eps": 1e-6, "hc_eps": 0.0, "iters": 1} | options
        streams = torch.tensor([[[1.0, 10.0], [2.0, 20.0]]])
        return mhc_pre(streams, torch.zeros(8, 4), vector(*base), torch.ones(3), **settings)

    def test_base_is_pre_then_post_then_comb_row_by_row(self) -> None:
        third = math.log(1 / 3)  # a row (0, log 1/3) has softmax (3/4, 1/4)
        base = [logit(0.25), logit(0.5), logit(0.75), logit(0.5), 0.0, third, 0.0, 0.0]
        y, post, comb = self.pre(base)
        near(y, [[0.25 * 1 + 0.5 * 2, 0.25 * 10 + 0.5 * 20]])
        near(post, [[1.5, 1.0]])
        # Rows (3/4, 1/4) and (1/2, 1/2); one iteration divides columns by 5/4 and 3/4.
        near(comb, [[[3 / 5, 1 / 3], [2 / 5, 2 / 3]]])

    def test_hc_eps_joins_pre_comb_and_the_divisors_but_not_post(self) -> None:
        y, post, comb = self.pre([0.0] * 8, hc_eps=0.5)
        near(y, [[3.0, 30.0]])
        near(post, [[1.0, 1.0]])
        near(comb, [[[0.4, 0.4], [0.4, 0.4]]])  # (1/2 + 1/2) / (2 + 1/2)

    def test_scales_belong_to_their_parts_and_the_norm_runs_over_all_streams(self) -> None:
        streams = torch.tensor([[[1.0, 1.0], [1.0, 5.0]]])  # mean square 28 / 4 = 7, + 2 = 9
        fn = torch.zeros(8, 4)
        fn[0, 3], fn[2, 0], fn[5, 0] = 3.0, 3.0, 3.0
        near(mhc_mix(streams, fn, 2.0), [[5.0, 0, 1.0, 0, 0, 1.0, 0, 0]])
        y, post, comb = mhc_pre(
            streams,
            fn,
            torch.zeros(8),
            vector(0.2 * logit(0.9), logit(0.8), math.log(3.0)),
            rms_eps=2.0,
            hc_eps=0.0,
            iters=1,
        )
        near(y[0, 1], 0.9 * 1 + 0.5 * 5)
        near(post, [[1.6, 1.0]])
        # comb row 0 has logits (0, log 3): (1/4, 3/4); columns sum to 3/4 and 5/4.
        near(comb, [[[1 / 3, 3 / 5], [2 / 3, 2 / 5]]])

    def test_sinkhorn_alternates_and_ends_on_columns(self) -> None:
        start = torch.tensor([[[0.0, math.log(3.0)], [0.0, 0.0]]])  # rows (1/4, 3/4), (1/2, 1/2)
        # columns /(3/4, 5/4): (1/3, 3/5), (2/3, 2/5); rows / (14/15, 16/15): (5/14, 9/14),
        # (5/8, 3/8); columns / (55/56, 57/56).
        twice = [[[20 / 55, 36 / 57], [35 / 55, 21 / 57]]]
        near(sinkhorn(start, hc_eps=0.0, iters=2), twice)
        many = sinkhorn(start.double(), hc_eps=0.0, iters=200)
        near(many.sum(1), [[1.0, 1.0]])
        near(many.sum(2), [[1.0, 1.0]])
        with pytest.raises(ValueError, match="iters: 0"):
            sinkhorn(start, hc_eps=0.0, iters=0)

    def test_sinkhorn_adds_eps_to_every_divisor(self) -> None:
        # Entries are 1/2 + 1/2; columns / 2.5: 2/5; rows / 1.3: 4/13; columns / (8/13 + 1/2).
        twice = sinkhorn(torch.zeros(1, 2, 2), hc_eps=0.5, iters=2)
        near(twice, torch.full((1, 2, 2), 4 / 13 / (8 / 13 + 0.5)))

    def test_post_reads_comb_by_source_then_target(self) -> None:
        streams = torch.tensor([[[1.0], [10.0]]])
        comb = torch.tensor([[[0.1, 0.2], [0.3, 0.4]]])
        out = mhc_post(torch.tensor([[100.0]]), streams, torch.tensor([[1.0, 2.0]]), comb)
        near(out, [[[100 + 0.1 + 3.0], [200 + 0.2 + 4.0]]])

    def test_head_does_not_normalise_its_gates(self) -> None:
        streams = torch.tensor([[[1.0], [3.0]]])  # mean square 5, + 4 = 9
        fn = torch.tensor([[3.0, 0.0], [0.0, 0.0]])
        out = mhc_head(
            streams, fn, vector(0.0, logit(0.25)), vector(logit(0.75)), rms_eps=4.0, hc_eps=0.125
        )
        near(out, [[0.875 * 1 + 0.375 * 3]])

    def test_refuses_shapes(self) -> None:
        streams = torch.ones(1, 2, 2)
        with pytest.raises(ValueError, match="fn"):
            mhc_head(streams, torch.ones(2, 3), torch.ones(2), torch.ones(1), rms_eps=0, hc_eps=0)
        with pytest.raises(ValueError, match=r"comb: shape \(1, 2\)"):
            mhc_post(torch.ones(1, 2), streams, torch.ones(1, 2), torch.ones(1, 2))


class TestCompressors:
    """D = 2, both channels a pair that turns half around with each token, or not at all."""

    def test_hca_softmax_runs_per_channel_over_the_window(self) -> None:
        kv = torch.tensor([[1.0, 8.0], [3.0, 4.0], [100.0, 100.0]])
        gate = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0], [9.0, 9.0]])
        ape = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0]])
        # channel 0: weights 1/4, 3/4 -> 2.5; channel 1: 3/4, 1/4 -> 7. Norm: mean square 27.625.
        out = hca_entries(kv, gate, ape, vector(1.0, 2.0), eps=8.375, freqs=STILL)
        near(out, [[2.5 / 6, 14.0 / 6]])

    def test_entries_turn_by_the_position_of_their_first_token(self) -> None:
        turning = torch.tensor([math.pi / 6], dtype=torch.float64)
        kv = torch.tensor([[1.0, 0.0]] * 7)
        out = hca_entries(
            kv, torch.zeros(7, 2), torch.zeros(3, 2), torch.ones(2), eps=0.0, freqs=turning
        )
        root = 2**0.5  # the norm of (1, 0)
        near(out, [[root, 0.0], [0.0, root]])  # positions 0 and 3; the seventh token makes none

    def test_csa_reads_first_halves_of_the_window_before_and_second_halves_of_its_own(self) -> None:
        kv = torch.tensor([[1.0, 0, 2, 4], [3, 0, 4, 4], [50, 50, 6, 4], [50, 50, 12, 4]])
        gate = torch.zeros(4, 4)
        ape = torch.zeros(2, 4)
        # Entry 0: second halves only: (3, 4). Entry 1: first halves 1, 3, second halves 6, 12.
        out = csa_entries(kv, gate, ape, torch.ones(2), eps=0.0, freqs=STILL)
        near(out[0], [3 / 12.5**0.5, 4 / 12.5**0.5])
        near(out[1], [5.5 / (17.125**0.5), 2 / (17.125**0.5)])

    def test_csa_adds_ape_to_both_halves_by_place(self) -> None:
        kv = torch.tensor([[1.0, 0, 0, 0], [7, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]])
        ape = torch.tensor([[0.0, 0, -50, 0], [math.log(2.0), 0, -50, 0]])
        # Channel 0 of entry 1: the previous window's first halves 1 and 7, weighted 1 : 2 -> 5,
        # its own second halves pushed out; channel 1: 0, 0, 1, 1 alike -> 1/2.
        out = csa_entries(kv, torch.zeros(4, 4), ape, torch.ones(2), eps=0.0, freqs=STILL)
        near(out[1], torch.tensor([5.0, 0.5]) / 12.625**0.5)

    def test_csa_gives_the_missing_window_no_weight(self) -> None:
        kv = torch.tensor([[9.0, 9, 4, 4], [9, 9, 4, 4]])
        gate = torch.full((2, 4), -1e4)
        out = csa_entries(kv, gate, torch.zeros(2, 4), torch.ones(2), eps=0.0, freqs=STILL)
        near(out, [[1.0, 1.0]])

    @pytest.mark.parametrize("tokens", [0, 1, 2])
    def test_no_whole_window_no_entry(self, tokens) -> None:
        kv = torch.ones(tokens, 4)
        ape, norm = torch.zeros(3, 4), torch.ones(4)
        assert hca_entries(kv, kv, ape, norm, eps=0.0, freqs=STILL).shape == (0, 4)
        assert csa_entries(kv, kv, ape, torch.ones(2), eps=0.0, freqs=STILL).shape == (0, 2)

    def test_refuses_shapes(self) -> None:
        with pytest.raises(ValueError, match="gate"):
            hca_entries(
                torch.ones(2, 2),
                torch.ones(2, 3),
                torch.ones(2, 2),
                torch.ones(2),
                eps=0.0,
                freqs=STILL,
            )


class TestRouting:
    """Gate values v with sqrt(log(1 + e^v)) known: e^v = e^(s^2) - 1."""

    def gate(self, *scores: float) -> torch.Tensor:
        return torch.tensor([[math.log(math.exp(s * s) - 1)] for s in scores])

    def test_scores(self) -> None:
        near(router_scores(torch.ones(1, 1), self.gate(1.0, 2.0, 0.5)), [[1.0, 2.0, 0.5]])

    def test_scores_keep_far_logits(self) -> None:
        gate = torch.tensor([[100.0], [-40.0], [-200.0]])
        near(router_scores(torch.ones(1, 1), gate)[0, 0], 10.0)
        near(router_scores(torch.ones(1, 1), gate)[0, 1], math.exp(-20))
        assert router_scores(torch.ones(1, 1).double(), gate.double())[0, 2] > 0

    def test_bias_chooses_and_does_not_weigh_and_scaling_comes_once(self) -> None:
        gate = self.gate(1.0, 2.0, 3.0, 0.5)
        ids, weights = route_learned(
            torch.ones(1, 1), gate, vector(0.0, 0.0, -9.0, 2.0), topk=2, scaling=2.5
        )
        assert ids.tolist() == [[3, 1]]
        near(weights, [[0.5 / 2.5 * 2.5, 2.0 / 2.5 * 2.5]])

    def test_equal_scores_go_to_the_lowest_id(self) -> None:
        ids, weights = route_learned(
            torch.ones(1, 1), self.gate(1.0, 1.0, 1.0), torch.zeros(3), topk=2, scaling=1.0
        )
        assert ids.tolist() == [[0, 1]]
        near(weights, [[0.5, 0.5]])

    def test_hashed_layers_choose_by_token_and_weigh_by_gate(self) -> None:
        table = torch.tensor([[0, 1], [2, 0]])
        ids, weights = route_hashed(
            torch.ones(2, 1), self.gate(1.0, 2.0, 3.0), torch.tensor([1, 0]), table, scaling=2.0
        )
        assert ids.tolist() == [[2, 0], [0, 1]]
        near(weights, [[1.5, 0.5], [2 / 3, 4 / 3]])

    def test_forced_choice_has_the_same_weights(self) -> None:
        scores = torch.tensor([[1.0, 2.0, 3.0]])
        near(route_selected(scores, torch.tensor([[2, 0]], dtype=torch.int32), 2.0), [[1.5, 0.5]])

    def test_refuses_ids_and_topk_out_of_range(self) -> None:
        gate = torch.ones(3, 1)
        with pytest.raises(ValueError, match=r"topk: 4; accepted: 1 \.\. 3 experts"):
            route_learned(torch.ones(1, 1), gate, torch.zeros(3), topk=4, scaling=1.0)
        table = torch.zeros(2, 2, dtype=torch.int64)
        with pytest.raises(ValueError, match="token_ids"):
            route_hashed(torch.ones(1, 1), gate, torch.tensor([2]), table, scaling=1.0)


class TestExperts:
    def test_gate_is_clamped_above_only_and_up_on_both_sides(self) -> None:
        silu = lambda v: v / (1 + math.exp(-v))  # noqa: E731
        gate, up = vector(5.0, -5.0, 1.0, 1.0), vector(1.0, 1.0, 5.0, -5.0)
        near(swiglu(gate, up, 2.0), [silu(2.0), silu(-5.0), 2 * silu(1.0), -2 * silu(1.0)])

    @pytest.mark.parametrize("limit", [None, 0.0, -1.0])
    def test_no_limit_no_clamp(self, limit) -> None:
        near(swiglu(vector(5.0), vector(-7.0), limit), [-35 / (1 + math.exp(-5))])

    def test_an_expert_multiplies_gate_and_up_and_projects_down(self) -> None:
        x = torch.tensor([[1.0, 2.0]])
        w_gate, w_up = torch.tensor([[30.0, 0.0]]), torch.tensor([[0.0, 2.0]])
        w_down = torch.tensor([[1.0], [-1.0]])
        near(expert(x, w_gate, w_up, w_down, limit=None), [[120.0, -120.0]])

    def test_each_token_sums_its_own_experts_by_weight(self) -> None:
        x = torch.tensor([[30.0], [40.0]])  # silu(30) is 30 in float32
        gate_up = torch.tensor([[[1.0], [1.0]], [[1.0], [2.0]], [[1.0], [0.0]]])
        down = torch.ones(3, 1, 1)
        ids = torch.tensor([[1, 0], [2, 1]], dtype=torch.int32)
        out = routed_experts(
            x, ids, torch.tensor([[0.5, 2.0], [7.0, 1.0]]), gate_up, down, limit=None
        )
        near(out, [[0.5 * 1800 + 2 * 900], [3200.0]])

    def test_refuses_an_expert_that_is_not_there(self) -> None:
        with pytest.raises(ValueError, match=r"ids: expert 0 \.\. 2"):
            routed_experts(
                torch.ones(1, 1),
                torch.tensor([[0, 2]]),
                torch.ones(1, 2),
                torch.ones(2, 2, 1),
                torch.ones(2, 1, 1),
                limit=None,
            )


class TestHadamard:
    def test_is_sylvesters(self) -> None:
        near(
            hadamard_matrix(4) * 2,
            [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]],
        )

    def test_is_its_own_inverse_and_spreads_an_outlier(self) -> None:
        x = torch.zeros(1, 64)
        x[0, 5] = 8.0
        near(hadamard_rotate(x).abs(), torch.ones(1, 64))
        near(hadamard_rotate(hadamard_rotate(x)), x)

    @pytest.mark.parametrize("dim", [0, 3, 96])
    def test_refuses_other_widths(self, dim) -> None:
        with pytest.raises(ValueError, match="a power of two"):
            hadamard_matrix(dim)
