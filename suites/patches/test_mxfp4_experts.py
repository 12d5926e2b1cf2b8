"""Routed experts with weights in mxfp4: blocks of 32, e8m0 scales.

Claim: on weights rounded to mxfp4 the product errs at most twice as much as plain torch in bf16;
  so does a stack of 61 layers, where that rounding grows no faster than bf16's; the logits of a
  checkpoint stay within .05 nats.
Why it breaks in practice: nibbles are read in the wrong order, a scale belongs to the wrong block
  or is applied twice, a row gets one scale where a block has its own.
A failure means: the packed weights are not read as they were written, or four bits are too few.
Cost: about 8 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

from typing import Any

from hypothesis import given

from reference.formats import round_mxfp4
from suites.patches.binding import bound, bound_without, on_cpu
from suites.patches.checkpoint import Checkpoint
from suites.patches.examination import Examination
from suites.patches.fp4_experts import SHAPES, Fp4Experts
from suites.patches.harvest import Harvest

MXFP4 = Fp4Experts("mxfp4", block=32, rounding=round_mxfp4)


def test_structured_inputs(examination: Examination) -> None:
    """Clamped and not; noise, outliers, sparse and equal rows, all sizes; NaN and Inf."""
    MXFP4.structured(examination)


def test_shapes_of_the_large_model(examination: Examination) -> None:
    """Sums over 4,096 and over 2,048 channels."""
    MXFP4.large(examination)


@given(**SHAPES)
def test_irregular_shapes(examination: Examination, **shape: Any) -> None:
    """Any number of tokens, experts and blocks; weights of any size."""
    MXFP4.irregular(examination, **shape)


def test_weights_of_the_checkpoint(examination: Examination, checkpoint: Checkpoint) -> None:
    """Experts of the first, the middle and the last layer, on synthetic rows."""
    MXFP4.weights_of(examination, checkpoint)


def test_harvested_rows(harvested: Examination, harvest: Harvest) -> None:
    """What the experts of a running engine saw, on their weights; its text at the logits."""
    opening = harvest.opening()
    MXFP4.harvested(harvested, harvest)
    harvested.whole_model(opening, routed_experts=on_cpu(harvested, bound(harvested).experts))


def test_compounding(examination: Examination) -> None:
    """21, 43 and 61 layers of experts: near the format's maths, and no growth."""
    MXFP4.compounded(examination)


def test_whole_model(examination: Examination) -> None:
    """All routed experts of a checkpoint in this format: KL at the logits."""
    examination.whole_model(routed_experts=on_cpu(examination, bound(examination).experts))


def test_it_runs_only_where_it_is_on(examination: Examination) -> None:
    """Its counter moves with the patch on, and there is none with it off."""
    examination.ran(bound(examination), bound_without(examination), "experts")
