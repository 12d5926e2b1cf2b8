"""An outlier channel under one scale a row: the fault of the case, seen by the same microtest."""

import pytest

from fidelity.errors import Violation
from fidelity.words import Ladder, PatchVerdict
from suites.patches import index_inputs
from tests.patches.test_broken_twins import microtest

FACTOR = 256.0


@pytest.fixture
def outlier(monkeypatch):
    """Keys with channel 0 larger, queries with it smaller by as much: the same scores exactly."""
    plain = index_inputs.plant

    def reparametrised(arguments, generator):
        needles = plain(arguments, generator)
        arguments["keys"][..., 0] *= FACTOR
        arguments["q"][..., 0] /= FACTOR
        return needles

    monkeypatch.setattr(index_inputs, "plant", reparametrised)


def needles(examine, monkeypatch, value):
    examination = examine("index_keys")
    monkeypatch.setattr(examination, "_values", (value,))
    microtest("index_keys").test_needles_from_1k_to_22k_tokens(examination)
    return examination


def test_int4_with_one_scale_a_row_loses_the_needles(examine, monkeypatch, outlier):
    examination = examine("index_keys")
    monkeypatch.setattr(examination, "_values", ("int4",))
    with pytest.raises(Violation, match=r"needles are no longer selected"):
        microtest("index_keys").test_needles_from_1k_to_22k_tokens(examination)
    report = examination.conclude()
    assert (report.verdict, report.ladder) == (PatchVerdict.CONVICTED, Ladder.SELECTION)


@pytest.mark.parametrize("value", ["bf16", "fp8"])
def test_wider_formats_keep_them(examine, monkeypatch, outlier, value):
    assert needles(examine, monkeypatch, value).conclude().verdict is not PatchVerdict.CONVICTED


def test_without_the_outlier_the_same_format_keeps_them(examine, monkeypatch):
    assert needles(examine, monkeypatch, "int4").conclude().verdict is not PatchVerdict.CONVICTED
