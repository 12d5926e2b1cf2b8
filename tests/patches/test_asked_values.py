"""A value that is asked for with --patch NAME=VALUE is the one that is examined."""

import dataclasses

import pytest

import kernels.ops
from fidelity.config.settings import resolve_microtests
from fidelity.errors import Violation
from fidelity.words import PatchVerdict
from suites.patches import binding
from suites.patches.examination import Examination
from tests.patches.test_broken_twins import microtest

SETTINGS = dataclasses.replace(resolve_microtests({}, environ={}), device="cpu")
TESTS = (
    "test_exactly_so_many_of_the_best",
    "test_numbers_of_the_large_model",
    "test_twice_as_many_contain_these",
    "test_whole_model",
)


def asked(text):
    return Examination("index_topk", dataclasses.replace(SETTINGS, patch=(text,)))


def test_index_topk_takes_a_number():
    examination, module = asked("index_topk=64"), microtest("index_topk")
    for test in TESTS:
        getattr(module, test)(examination)
    report = examination.conclude()
    assert (report.verdict, report.value) == (PatchVerdict.EXONERATED, "64")


@pytest.mark.parametrize("test", TESTS)
def test_every_test_of_index_topk_sees_a_capped_number(test, monkeypatch):
    table = tuple(
        dataclasses.replace(p, parse=lambda b: min(int(b.value), 200))
        if p.name == "index_topk"
        else p
        for p in kernels.ops.PATCHES
    )
    monkeypatch.setattr(kernels.ops, "PATCHES", table)
    binding._bind.cache_clear()
    with pytest.raises(Violation, match="512 entries were asked for, 200 are bound"):
        getattr(microtest("index_topk"), test)(asked("index_topk=512"))
    binding._bind.cache_clear()
