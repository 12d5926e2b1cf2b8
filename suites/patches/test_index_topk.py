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
from suites.patches import flash_shapes, index_inputs
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
    for value in examination.values((str(topk),)):
        arguments = index_inputs.sequences(
            examination.generator(), positions, heads=5, dim=DIM, topk=topk_of(examination, value)
        )
        held_against_the_best(examination, value, Case(f"positions {positions}", arguments))


def test_numbers_of_the_large_model(examination: Examination) -> None:
    """512 and 1,024 of thousands of entries."""
    generator = examination.generator()
    for value in examination.values(("512", "1024")):
        case = flash_shapes.index_case(generator, topk_of(examination, value))
        held_against_the_best(examination, value, case, flash_shapes.SETTINGS)


def topk_of(examination: Examination, value: str) -> int:
    """The number that is bound for a value: what the value says."""
    bound_ = bound(examination, value).index_topk
    examination.must(
        "numbers that are not as asked",
        holds=bound_ == int(value),
        sentence=f"{value} entries were asked for, {bound_} are bound",
    )
    return bound_


def held_against_the_best(
    examination: Examination, value: str, case: Case, settings: Settings = SETTINGS
) -> None:
    """What is selected with this value, against the best by true scores."""
    examination.patch(
        selecting(bound(examination, value, settings)),
        true_selection,
        true_selection,
        Case(f"{case.name}, n = {value}", case.arguments),
        dtype=torch.float32,
        selects=SELECTS,
        must_differ=False,
    )


def test_twice_as_many_contain_these(examination: Examination) -> None:
    """What n reads, 2 n reads too."""
    for value in examination.values(("32",)):
        n = topk_of(examination, value)
        one = index_inputs.sequences(
            examination.generator(), [8 * n - 1, 20 * n, 40 * n], heads=5, dim=DIM, topk=n
        )
        few = on_cpu(examination, selecting(bound(examination, value)))(**one)
        twice = bound(examination, str(2 * n))
        many = on_cpu(examination, selecting(twice))(**{**one, "topk": 2 * n})
        inside = all(
            set(a[a >= 0].tolist()) <= set(b[b >= 0].tolist()) and len(b[b >= 0]) == 2 * n
            for a, b in zip(few, many, strict=True)
        )
        examination.must(
            "entries lost by doubling",
            holds=inside,
            sentence="twice as many entries do not contain those that were read before",
        )
        examination.ran(twice, bound_without(examination), "index_select")


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
    """A checkpoint that may read twice as many entries, or so many: KL at the logits."""
    own = model_of(examination.checkpoint).config.index_topk
    for value in examination.values((str(2 * own),)):
        wanted = topk_of(examination, value)

        def more(scores: Tensor, seen: Tensor, topk: int, *, wanted: int = wanted) -> Tensor:
            del topk
            return select(scores, seen, wanted)

        examination.whole_model(select=more)
