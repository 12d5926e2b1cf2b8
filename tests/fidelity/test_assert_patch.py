"""What `assert_patch` refuses in words, and what it no longer exonerates."""

from pathlib import Path

import pytest
import torch

from fidelity.errors import Inconclusive, Violation
from fidelity.tensors import Case, Selects, assert_patch, examine_patch
from fidelity.words import PatchVerdict

NAN = float("nan")


def product(x, weight):
    return x * weight


def other_bits(x, weight):
    """Right to one rounding, and no alias."""
    return (x.double() * weight.double() * (1 + 4e-8)).to(x.dtype)


def arguments(rows=16, channels=32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, channels, generator=generator)
    return {"x": x, "weight": torch.rand(channels, generator=generator) + 0.5}


def examine(candidate=other_bits, baseline=product, reference=product, inputs=None, **options):
    inputs = Case("noise", arguments()) if inputs is None else inputs
    options = {"name": "product", "dtype": torch.float32, "must_differ": False} | options
    return examine_patch(candidate, baseline, reference, inputs, **options)


def test_a_right_product_is_exonerated_however_it_is_asked():
    report = examine(row_inputs=("x",), special=("x",), keep=("weight",), must_differ=True)
    assert report.verdict is PatchVerdict.EXONERATED


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"formats": {"wieght": torch.round}},
            r"formats: got 'wieght'; accepted: names of inputs: x, w",
        ),
        ({"formats": {"weight": 3}}, r"formats\['weight'\]: got 3; accepted: a function"),
        ({"formats": [torch.round]}, r"formats: got .*; accepted: a mapping"),
        ({"keep": ("ww",)}, r"keep: got 'ww'; accepted: names of inputs: x, weight"),
        ({"keep": "x"}, r"keep: got 'x'; accepted: a sequence of names"),
        ({"special": ("z",)}, r"special: got 'z'; accepted: names of inputs"),
        ({"special": "x"}, r"special: got 'x'; accepted: a sequence of names"),
        ({"row_inputs": ("z",)}, r"row_inputs: got 'z'; accepted: names of inputs"),
        ({"row_inputs": ("x", "weight")}, r"row_inputs: .*16.*32.*; accepted: as many"),
        ({"selects": "ids"}, r"selects: got 'ids'; accepted: a Selects"),
        (
            {"selects": Selects(scores=lambda x, weight: x, output=5)},
            r"selects: got output 5; accepted: 0 \.\. 0",
        ),
        (
            {"selects": Selects(scores=lambda x, weight: x, output=-1)},
            r"selects: got output -1; accepted: 0 \.\. 0",
        ),
        ({"stack": 3}, r"stack: got 3; accepted: a Stack"),
        ({"dtype": "float32"}, r"dtype: got 'float32'; accepted: torch\.float32"),
        ({"dtype": torch.int32}, r"dtype: got torch\.int32; accepted: torch\.float32"),
        ({"device": "cudaa"}, r"device: got 'cudaa'; accepted: a device of torch"),
        ({"calls": 7}, r"calls: got 7; accepted: a function"),
        ({"calls": lambda: None}, r"calls: got None from it; accepted: a whole number"),
        ({"name": ""}, r"name: got ''; accepted: the patch's name"),
        ({"code": "kernel.py"}, r"code: got 'kernel\.py'; accepted: a sequence of paths"),
        ({"code": (Path("no/such.py"),)}, r"code: got .*; accepted: paths of files that are there"),
        ({"inputs": arguments()}, r"inputs: got a dict; accepted: a Case, or several"),
        ({"inputs": [arguments()]}, r"inputs: got a dict; accepted: a Case, or several"),
        ({"inputs": [("noise", {})]}, r"inputs: got \('noise', {}\); accepted: a Case"),
        ({"inputs": Case("noise", [1])}, r"inputs, case 'noise': got \[1\]; accepted: a mapping"),
        ({"inputs": []}, r"inputs: got none; accepted: at least one Case"),
        ({"candidate": None}, r"candidate: got None; accepted: a function"),
        ({"reference": 3}, r"reference: got 3; accepted: a function"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_words(options, told):
    with pytest.raises(ValueError, match=f"^{told}"):
        examine(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"device: got 'cuda'; accepted: .* torch sees no GPU"):
        examine(device="cuda")


def test_inputs_that_cannot_be_used_as_they_are_named_are_refused():
    one = Case("noise", {**arguments(), "weight": 3})
    for option in ("special", "row_inputs"):
        with pytest.raises(
            ValueError, match=rf"^{option}: got 3 as 'weight'; accepted: a .*tensor"
        ):
            examine(inputs=one, **{option: ("weight",)})
    with pytest.raises(ValueError, match=r"^formats: got 3 as 'weight' of case 'noise'"):
        examine(inputs=one, formats={"weight": torch.round})


@pytest.mark.parametrize("who", ["candidate", "baseline", "reference"])
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, "got None from it"),
        (1.0, r"got 1\.0 from it"),
        ((), "got no output from it"),
        ([1.0], r"got 1\.0 as output 0"),
        ({"y": None}, "got None as output 0"),
    ],
)
def test_an_op_that_returns_no_tensors_is_refused(who, made, told):
    with pytest.raises(ValueError, match=rf"^{who}: {told}; accepted: a tensor, or several"):
        examine(**{who: lambda x, weight: made})


def test_outputs_of_another_shape_or_dtype_than_the_baselines_are_refused():
    with pytest.raises(ValueError, match=r"^baseline: shape \[3, 32\]; accepted: \[16, 32\]"):
        examine(baseline=lambda x, weight: product(x, weight)[:3])
    with pytest.raises(ValueError, match=r"^candidate: bfloat16; accepted: float32, the baseline"):
        examine(lambda x, weight: product(x, weight).bfloat16())
    with pytest.raises(ValueError, match=r"^candidate: float32; accepted: int64, the baseline"):
        examine(baseline=lambda x, weight: product(x, weight).long())

    def whole(dtype):
        return lambda x, weight: product(x, weight).round().to(dtype)

    # an index is the same number in int32 and in int64
    report = examine(whole(torch.int32), whole(torch.int64), whole(torch.int64))
    assert report.verdict is PatchVerdict.EXONERATED


def test_a_float8_output_is_compared_too():
    def rounded(x, weight):
        return product(x, weight).to(torch.float8_e4m3fn)

    assert examine(rounded, rounded, rounded).verdict is PatchVerdict.EXONERATED


def test_where_nothing_is_compared_nothing_is_said():
    none = Case("no rows", arguments(rows=0))
    with pytest.raises(ValueError, match=r"inputs: got no case whose outputs hold a number"):
        examine(inputs=none)
    for option in ("special", "row_inputs"):
        with pytest.raises(
            ValueError, match=rf"{option}: got a tensor \[0, 32\] .*; accepted: .*rows"
        ):
            examine(inputs=none, **{option: ("x",)})
    both = [Case("noise", arguments()), none]  # beside others an empty call is a case like any
    assert examine(inputs=both).verdict is PatchVerdict.EXONERATED


class TestBaseline:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_twice_the_error_of_a_wrong_baseline_exonerates_nothing(self, dtype):
        share = 0.031 if dtype is torch.float32 else 0.2

        def scaled(by):
            return lambda x, weight: product(x, weight) * (1 + by)

        report = examine(scaled(1.9 * share), scaled(share), dtype=dtype)
        assert report.verdict is PatchVerdict.UNDECIDED
        assert "the baseline is off by" in report.reason
        assert "twice the error of a wrong baseline exonerates nothing" in report.reason
        with pytest.raises(Inconclusive, match="the baseline is off by"):
            assert_patch(
                other_bits, scaled(share), product, Case("noise", arguments()),
                name="product", dtype=dtype,
            )  # fmt: skip

    def test_a_baseline_of_nan_is_no_yardstick(self):
        report = examine(baseline=lambda x, weight: product(x, weight) * NAN)
        assert report.verdict is PatchVerdict.UNDECIDED
        assert report.reason.startswith("512 values of the baseline are NaN or infinite where")

    def test_one_small_wrong_row_of_the_baseline_is_seen(self):
        given = arguments()
        given["x"][5] *= 1e-2

        def baseline(x, weight):
            made = product(x, weight)
            made[5] *= 1.5
            return made

        report = examine(baseline=baseline, inputs=Case("a small row", given))
        assert report.verdict is PatchVerdict.UNDECIDED

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_cancellation_is_no_fault_of_a_baseline(self, dtype):
        """Sums that nearly vanish err by many times themselves, and so does the maths."""
        generator = torch.Generator().manual_seed(4)
        x = torch.randn(16, 300, generator=generator)
        inputs = Case("cancelling", {"x": torch.cat((x, -x + 1e-3 * x.roll(1, 1)), 1).to(dtype)})

        def summed(x):
            return torch.stack((x.sum(1), x[:, :7].sum(1)), 1)

        def backwards(x):
            return torch.stack((x.flip(1).sum(1), x[:, :7].flip(1).sum(1)), 1)

        report = examine(backwards, summed, summed, inputs, dtype=dtype)
        assert report.verdict is PatchVerdict.EXONERATED


class TestAgain:
    def test_a_kernel_that_is_right_once_is_convicted(self):
        calls = []

        def once(x, weight):
            calls.append(1)
            return other_bits(x, weight) * (len(calls) == 1)

        report = examine(once)
        assert report.verdict is PatchVerdict.CONVICTED
        assert "noise, called again" in report.reason

    def test_a_row_that_is_wrong_alone_is_convicted(self):
        def leaking(x, weight):
            return other_bits(x, weight) + 0.5 * (len(x) == 1)

        assert examine(leaking).verdict is PatchVerdict.EXONERATED  # nobody asked for rows
        report = examine(leaking, row_inputs=("x",))
        assert report.verdict is PatchVerdict.CONVICTED
        assert "noise, rows alone" in report.reason

    def test_noise_within_the_limit_is_measured_and_not_judged(self):
        calls = []

        def noisy(x, weight):
            calls.append(1)
            return product(x, weight) * (1 + 1e-7 * len(calls))

        report = examine(noisy, row_inputs=("x",))
        assert report.verdict is PatchVerdict.EXONERATED
        figures = {check.name: check.value for check in report.checks}
        assert figures["runs that differ from the first"] == 1
        assert figures["outputs that change when a row is alone"] == 3

    def test_a_selection_that_changes_when_a_row_is_alone_is_convicted(self):
        def best(x, k):
            return x.topk(k).indices

        def worst(x, k):
            return x.topk(k, largest=len(x) > 1).indices

        inputs = Case("noise", {"x": arguments()["x"], "k": 3})
        options = {"selects": Selects(scores=lambda x, k: x), "row_inputs": ("x",)}
        with pytest.raises(Violation, match=r"choose other entries .*rows alone"):
            assert_patch(
                worst, best, best, inputs,
                name="best", dtype=torch.float32, must_differ=False, **options,
            )  # fmt: skip

    def test_other_outputs_at_a_later_call_are_refused(self):
        calls = []

        def shrinking(x, weight):
            calls.append(1)
            return other_bits(x, weight)[: 17 - len(calls)]

        with pytest.raises(
            ValueError, match=r"candidate: shapes \[\[15, 32\]\] when it was called"
        ):
            examine(shrinking)
        with pytest.raises(ValueError, match=r"candidate: shapes \[\[\]\] on row 0 alone"):
            examine(lambda x, w: other_bits(x, w) if len(x) > 1 else x.sum(), row_inputs=("x",),
                    inputs=Case("noise", {"x": arguments()["x"], "w": arguments()["weight"]}),
                    baseline=lambda x, w: x * w, reference=lambda x, w: x * w)  # fmt: skip

    def test_outputs_without_the_rows_that_were_named_are_refused(self):
        def total(x, weight):
            return product(x, weight).sum(0)

        with pytest.raises(
            ValueError, match=r"row_inputs: output 0 has shape \[32\]; accepted: the 16"
        ):
            examine(total, total, total, row_inputs=("x",))
