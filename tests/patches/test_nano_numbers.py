"""The table of published figures has lines that were measured on a checkpoint's own weights."""

import pytest
import torch

from benchmarks.nano_numbers import nano_figures
from suites.patches.whole_model import NANO


@pytest.fixture(scope="module")
def ours():
    return {f.what: f.ours for f in nano_figures(NANO, torch.device("cpu"), (600,))}


def figure(ours, *words):
    (found,) = (value for what, value in ours.items() if all(word in what for word in words))
    return float(found.partition(" ")[0].partition("-1.0")[0])


def test_kernels_stay_within_the_published_figures_on_real_inputs(ours):
    assert figure(ours, "split-K", "rows in fp32") <= 6.7e-3
    assert figure(ours, "split-K", "against maths on these") <= 6.7e-3
    assert figure(ours, "mHC") <= 1e-2
    assert figure(ours, "mxfp4", "maths on these") <= 5e-3
    assert figure(ours, "nvfp4", "maths on these") <= 5e-3


def test_four_and_eight_bits_cost_what_their_grids_cost(ours):
    assert 0.05 <= figure(ours, "mxfp4", "unrounded") <= 0.2
    assert 0.05 <= figure(ours, "nvfp4", "unrounded") <= 0.2
    assert 0.01 <= figure(ours, "fp8", "unrounded") <= 0.1


def test_the_planted_fact_is_selected_and_kept(ours):
    (found,) = (value for what, value in ours.items() if "planted fact" in what)
    lost, _, wanted = found.split()
    assert (int(lost), int(wanted) > 0) == (0, True)


def test_a_kernel_that_drops_its_last_split_leaves_them(break_kernel):
    every = "range(0, rows.shape[1], SPLIT)"
    but_one = "range(0, max(SPLIT, rows.shape[1] - SPLIT), SPLIT)"
    break_kernel("splitk_decode", every, but_one)
    broken = {f.what: f.ours for f in nano_figures(NANO, torch.device("cpu"), (600,))}
    assert figure(broken, "split-K", "rows in fp32") > 6.7e-3
