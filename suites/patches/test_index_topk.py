"""How many compressed entries a query may read.

Claim: with n a query reads the n best entries it sees, or all when there are no more; with 2 n it
  reads those and more; doubling the model's own n moves the logits by less than .05 nats.
Why it breaks in practice: the flag is read by one path and not by the other, or a buffer keeps the
  old width; where selection itself is broken, recall ends in proportion to this number.
A failure means: queries read another number of entries than was asked for.
Cost: about 5 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Selects
from kernels import Settings
from reference.index_topk import select
from suites.patches import index_inputs
from suites.patches.binding import SETTINGS, bound, bound_without, on_cpu
from suites.patches.examination import Examination
from suites.patches.index_inputs import selecting, true_scores, true_selection, visible
from suites.patches.whole_model import model_of

DIM = SETTINGS.index_head_dim
SELECTS = Selects(scores=true_scores, visible=visible)


@given(positions=st.lists(st.integers(0, 700), min_size=1, max_size=4), topk=st.integers(1, 200))
def test_exactly_so_many_of_the_best(
    examination: Examination, positions: list[int], topk: int
) -> None:
    """The n best entries; all of them where there are fewer."""
    ops = bound(examination, str(topk))
    examination.must(
        "numbers that are not as asked",
        holds=ops.index_topk == topk,
        sentence=f"{topk} entries were asked for, {ops.index_topk} are bound",
    )
    arguments = index_inputs.sequences(
        examination.generator(), positions, heads=5, dim=DIM, topk=ops.index_topk
    )
    examination.patch(
        selecting(ops),
        true_selection,
        true_selection,
        Case(f"positions {positions}, n = {topk}", arguments),
        dtype=torch.float32,
        selects=SELECTS,
        must_differ=False,
    )


def test_twice_as_many_contain_these(examination: Examination) -> None:
    """What n reads, 2 n reads too."""
    generator, n = examination.generator(), 32
    one = index_inputs.sequences(generator, [255, 999, 1_500], heads=5, dim=DIM, topk=n)
    few = on_cpu(examination, selecting(bound(examination, str(n))))(**one)
    many = on_cpu(examination, selecting(bound(examination, str(2 * n))))(**{**one, "topk": 2 * n})
    inside = all(
        set(a[a >= 0].tolist()) <= set(b[b >= 0].tolist()) and len(b[b >= 0]) == 2 * n
        for a, b in zip(few, many, strict=True)
    )
    examination.must(
        "entries lost by doubling",
        holds=inside,
        sentence="twice as many entries do not contain those that were read before",
    )
    examination.ran(bound(examination, str(2 * n)), bound_without(examination), "index_select")


def test_the_models_own_number_is_off(examination: Examination) -> None:
    """Asking for what the model has changes nothing, and is said to be off."""
    settings = Settings(index_topk=32, index_head_dim=DIM, implementation="torch")
    state = bound(examination, "32", settings).patch_states()
    mine = next(s for s in state if s["name"] == "index_topk")
    off = mine["state"] == "off" and mine["calls"] == 0
    examination.must(
        "on at the model's own value",
        holds=off,
        sentence="the model's own number counts as a patch",
    )


def test_whole_model(examination: Examination) -> None:
    """A checkpoint that may read twice as many entries: KL at the logits."""
    own = model_of(examination.checkpoint).config.index_topk
    wanted = bound(examination, str(2 * own)).index_topk

    def more(scores: Tensor, seen: Tensor, topk: int) -> Tensor:
        del topk
        return select(scores, seen, wanted)

    examination.whole_model(select=more)
