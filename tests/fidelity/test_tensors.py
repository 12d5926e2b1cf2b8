"""Comparators, poison and `assert_patch`, on a kernel of one's own: an RMS norm."""

import math

import pytest
import torch

from fidelity.errors import Inconclusive, Violation
from fidelity.tensors import (
    Case,
    Selects,
    Stack,
    assert_patch,
    compare,
    compare_selection,
    compounding_checks,
    examine_patch,
    poisoned,
    same_bits,
    selection_checks,
)
from fidelity.words import Ladder, PatchVerdict, Question

NAN, INF = float("nan"), float("inf")


def truth(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def plain(x, weight):
    return truth(x, weight)


def norm(x, weight):
    """A candidate: fp32 inside, its own output buffer, row by row."""
    out = torch.empty_like(x)
    for row, value in enumerate(x.float()):
        scale = 1 / torch.sqrt((value * value).sum() / len(value) + 1e-6)
        out[row] = (value * scale * weight.float()).to(x.dtype)
    return out


def case(rows=9, channels=40):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, channels, generator=generator)
    return Case("noise", {"x": x, "weight": torch.rand(channels, generator=generator) + 0.5})


def examine(candidate, **options):
    defaults = {"name": "norm", "dtype": torch.bfloat16, "row_inputs": ("x",), "special": ("x",)}
    return examine_patch(candidate, plain, truth, case(), **defaults | options)


def figure(report, name):
    return next(check for check in report.checks if check.name == name)


class TestComparison:
    def test_masks_come_first_and_are_counted(self):
        a, b = torch.tensor([[1.0, NAN, INF, INF]]), torch.tensor([[1.0, NAN, INF, -INF]])
        assert compare(a, b).mask_differences == 1
        assert compare(a, torch.tensor([[1.0, NAN, INF, 2.0]])).mask_differences == 1
        assert compare(b, b).mask_differences == 0
        assert compare(b, b).max_abs == 0

    def test_one_bad_row_shows_beside_the_whole(self):
        right = torch.ones(1000, 8)
        right[7] = 1e-2
        wrong = right.clone()
        wrong[7] *= 1.5
        found = compare(wrong, right)
        assert found.worst_row == pytest.approx(0.5, rel=1e-5)
        assert found.worst_at == 7
        assert found.max_abs < 0.01
        assert found.relative < 1e-3

    def test_one_bad_head_shows(self):
        right = torch.ones(5, 4, 8)
        wrong = right.clone()
        wrong[:, 2] = 1.25
        assert compare(wrong, right).worst_head == 0.25

    def test_the_cosine_difference_sees_a_scale_that_a_cosine_does_not(self):
        x = torch.ones(3, 3)
        assert compare(2 * x, x).cosine_difference == pytest.approx(0.2)
        assert compare(x, x).cosine_difference == 0

    @pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 0)])
    def test_scalars_and_empty_tensors_compare(self, shape):
        assert compare(torch.zeros(shape), torch.zeros(shape)).max_abs == 0

    def test_another_shape_is_refused_in_words(self):
        with pytest.raises(ValueError, match=r"candidate: shape \[2\]; accepted: \[3\]"):
            compare(torch.zeros(2), torch.zeros(3))

    def test_bits_tell_minus_zero_and_dtypes_apart(self):
        assert same_bits(torch.tensor([NAN]), torch.tensor([NAN]))
        assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
        assert not same_bits(torch.zeros(1), torch.zeros(1).bfloat16())


class TestSelection:
    scores = torch.tensor([[5.0, 4.0, 3.0, 3.0, 1.0]])

    def found(self, chosen, **options):
        return compare_selection(torch.tensor([chosen]), self.scores, **options)

    def test_a_tie_at_the_border_is_excused_and_reported(self):
        for chosen in ([0, 1, 2], [3, 1, 0]):
            found = self.found(chosen)
            assert (found.changed_rows, found.tied_rows) == (0, 1)
        assert self.found([0, 1, 3]).jaccard_min == 0.5

    def test_a_change_beyond_ties_is_found(self):
        assert self.found([0, 1, 4]).changed_rows == 1
        assert self.found([0, 2]).changed_rows == 1
        assert self.found([0, 2], band=0.3).changed_rows == 0  # 1.0 of 5.0 lies in this band

    @pytest.mark.parametrize("chosen", [[0, 1, -1], [0, 0, 1], [0, 1, 9], [3, 4, 0]])
    def test_too_few_twice_or_out_of_range_is_malformed(self, chosen):
        found = self.found(chosen, visible=torch.tensor([4]))
        assert found.malformed_rows == 1
        checks = selection_checks(found, question=Question.IMPLEMENTATION, where="here")
        assert checks[0].rung is Ladder.STRUCTURAL

    def test_fewer_visible_than_asked_for_are_all_taken(self):
        found = self.found([0, 1, -1, -1], visible=torch.tensor([2]))
        assert (found.malformed_rows, found.changed_rows, found.jaccard_min) == (0, 0, 1)

    def test_infinite_scores_tie_with_each_other(self):
        scores = torch.full((1, 4), -INF)
        found = compare_selection(torch.tensor([[2, 3]]), scores)
        assert (found.tied_rows, found.changed_rows) == (1, 0)

    def test_a_lost_needle_convicts_even_as_a_question_of_format(self):
        needles = torch.tensor([4])
        found = self.found([0, 1, 2], needles=needles)
        checks = selection_checks(found, question=Question.FORMAT, where="here")
        broken = [check for check in checks if check.holds is False]
        assert [check.name for check in broken] == ["needles lost"]
        assert broken[0].rung is Ladder.SELECTION


class TestPoison:
    def test_what_is_handed_out_is_poisoned_and_put_back(self):
        before = torch.empty
        with poisoned():
            made = [torch.empty(3), torch.empty_like(torch.ones(2)), torch.ones(1).new_empty(2)]
            assert all(tensor.isnan().all() for tensor in made)
            assert int(torch.empty(1, dtype=torch.int32)) == 2**31 - 1
            assert torch.empty(2, dtype=torch.float8_e4m3fn).float().isnan().all()
        assert torch.empty is before

    def test_it_is_put_back_after_an_error(self):
        before = torch.empty
        with pytest.raises(RuntimeError), poisoned():
            raise RuntimeError
        assert torch.empty is before


class TestAssertPatch:
    def test_a_right_kernel_is_exonerated_with_its_scope(self):
        report = assert_patch(
            norm, plain, truth, case(), name="norm", dtype=torch.bfloat16, row_inputs=("x",)
        )
        assert report.verdict is PatchVerdict.EXONERATED
        assert report.ladder is Ladder.ROUNDING
        assert report.scope.shapes == ("weight[40]", "x[9, 40]")
        assert report.scope.dtype == "bfloat16"
        assert figure(report, "outputs that change when a row is alone").value == 0
        assert figure(report, "runs that differ from the first").value == 0

    @pytest.mark.parametrize(
        ("words", "broken"),
        [
            ("largest error", lambda x, weight: norm(x, weight) * 1.05),
            (
                "(largest error|worst row)",
                lambda x, weight: torch.cat((norm(x, weight)[:-1], norm(x, weight)[:1])),
            ),
            (
                "NaN or infinite",
                lambda x, weight: norm(x, weight).index_fill(0, torch.tensor(3), NAN),
            ),
            ("largest error", lambda x, weight: torch.zeros_like(x)),
            ("finite where", lambda x, weight: norm(x.nan_to_num(), weight)),
        ],
    )
    def test_a_wrong_kernel_is_convicted_in_words(self, words, broken):
        special = ("x",) if words == "finite where" else ()
        with pytest.raises(Violation, match=rf"^norm convicted: .*{words}"):
            assert_patch(
                broken, plain, truth, case(), name="norm", dtype=torch.bfloat16, special=special
            )

    def test_a_tail_left_unwritten_is_seen(self):
        def short(x, weight):
            out = torch.empty_like(x)
            out[:, :-1] = norm(x, weight)[:, :-1]
            return out

        report = examine(short)
        assert report.verdict is PatchVerdict.CONVICTED
        assert report.ladder is Ladder.STRUCTURAL
        assert figure(report, "NaN and Inf in other places").value == 9

    def test_a_kernel_that_writes_into_its_arguments_is_convicted(self):
        def scribble(x, weight):
            out = norm(x, weight)
            x[0] = 7
            return out

        report = examine(scribble)
        assert report.verdict is PatchVerdict.CONVICTED
        assert report.reason == "it wrote into its own arguments x (noise)"
        assert examine(norm).verdict is PatchVerdict.EXONERATED  # the caller's x is as it was

    def test_an_alias_of_the_baseline_is_undecided(self):
        with pytest.raises(Inconclusive, match=r"undecided: .*alias of the baseline"):
            assert_patch(plain, plain, truth, case(), name="norm", dtype=torch.float32)

    def test_a_patch_that_never_ran_is_inert(self):
        report = examine(norm, calls=lambda: 7)
        assert report.verdict is PatchVerdict.INERT
        assert report.ladder is None
        with pytest.raises(Inconclusive, match=r"inert: its call counter did not move"):
            assert_patch(
                norm, plain, truth, case(), name="norm", dtype=torch.bfloat16, calls=lambda: 7
            )

    def test_a_declared_format_needs_the_question_of_format(self):
        formats = {"weight": lambda w: w.bfloat16().float()}

        def rounding(x, weight):
            return norm(x, weight.bfloat16().float())

        report = examine(rounding, dtype=torch.float32, formats=formats)
        assert report.verdict is PatchVerdict.UNDECIDED
        assert report.reason == "not measured: choice of format"
        stack = Stack(
            step=lambda op, x, layer: x + 0.1 * op(x=x.roll(layer, 1), weight=torch.ones(40)),
            start=case().arguments["x"],
            head=torch.randn(30, 40, generator=torch.Generator().manual_seed(2)) * 0.3,
        )
        assert examine(rounding, dtype=torch.float32, formats=formats, stack=stack).verdict is (
            PatchVerdict.EXONERATED
        )

    def test_a_kernel_that_depends_on_its_neighbours_is_measured_not_judged(self):
        def uneven(x, weight):
            return norm(x, weight) * (1 + 2**-7 * (x.shape[0] == 1))

        report = examine(uneven)
        assert report.verdict is PatchVerdict.EXONERATED
        assert figure(report, "outputs that change when a row is alone").value == 3

    def test_a_selecting_kernel_is_judged_by_its_sets(self):
        def top(x, k):
            return x.topk(k).indices.flip(1)

        def first(x, k):
            return torch.arange(k).expand(len(x), -1)

        selects = Selects(scores=lambda x, k: x)
        inputs = Case("noise", {"x": case().arguments["x"], "k": 5})
        options = {"name": "top", "dtype": torch.float32, "selects": selects}
        baseline = lambda x, k: x.topk(k).indices  # noqa: E731
        assert examine_patch(top, baseline, baseline, inputs, **options).verdict is (
            PatchVerdict.EXONERATED
        )
        report = examine_patch(first, baseline, baseline, inputs, **options)
        assert (report.verdict, report.ladder) == (PatchVerdict.CONVICTED, Ladder.SELECTION)

    def test_limits_too_wide_to_see_planted_damage_exonerate_nothing(self):
        def coarse(x, weight):
            return truth(x, weight) * 1.065  # within what bf16 may do to the inputs and the result

        report = examine_patch(norm, coarse, truth, case(), name="norm", dtype=torch.bfloat16)
        assert report.verdict is PatchVerdict.UNDECIDED
        assert "made 12% larger on purpose was not seen" in report.reason

    def test_no_input_and_other_outputs_are_refused(self):
        with pytest.raises(ValueError, match=r"inputs: got none; accepted: at least one Case"):
            examine_patch(norm, plain, truth, [], name="norm", dtype=torch.float32)
        with pytest.raises(ValueError, match=r"candidate: 2 outputs; accepted: 1"):
            examine(lambda x, weight: (norm(x, weight), x), special=())
        with pytest.raises(ValueError, match=r"candidate: shape \[4, 40\]; accepted: \[9, 40\]"):
            examine(lambda x, weight: norm(x, weight)[:4], special=())


class TestCompounding:
    @staticmethod
    def checks(damage):
        generator = torch.Generator().manual_seed(3)
        mats = [torch.randn(16, 16, generator=generator) / 4 for _ in range(61)]
        stack = Stack(
            step=lambda op, x, layer: x + 0.2 * op(x @ mats[layer]),
            start=torch.randn(12, 16, generator=generator),
            head=torch.randn(50, 16, generator=generator) / 2,
        )
        return {c.name: c for c in compounding_checks(damage, torch.tanh, stack, where="here")}

    def test_an_exact_op_has_no_error_at_any_depth(self):
        found = self.checks(torch.tanh)
        assert found["relative error, 61 layers"].value == 0
        assert all(check.holds is not False for check in found.values())

    def test_a_coarse_op_moves_the_logits_beyond_the_margin(self):
        found = self.checks(lambda x: torch.tanh(x).round())
        assert found["KL at the logits, nats, 21 layers"].holds is False
        assert found["KL at the logits, nats, 61 layers"].rung is Ladder.DRIFT

    def test_an_error_that_grows_with_depth_is_seen(self):
        calls = iter(range(1000))
        found = self.checks(lambda x: torch.tanh(x) * (1 + 1e-7 * 1.3 ** next(calls)))
        assert found["growth of the error over depth"].holds is False

    def test_nan_at_the_logits_is_infinitely_bad(self):
        found = self.checks(lambda x: torch.tanh(x) * NAN)
        assert math.isinf(found["KL at the logits, nats, 21 layers"].value)
        assert found["KL at the logits, nats, 21 layers"].holds is False
