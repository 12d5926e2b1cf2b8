"""Microtests run in this process, on candidates that were broken on purpose."""

import dataclasses
import sys
import types
from pathlib import Path

import hypothesis
import pytest
import torch

import kernels.ops
from fidelity.config.settings import resolve_microtests
from suites.patches import binding
from suites.patches.examination import Examination

KERNELS = Path(kernels.__file__).parent


@pytest.fixture(autouse=True)
def _quick():
    torch.set_num_threads(1)
    hypothesis.settings.register_profile(
        "broken",
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=25,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),  # a first red is enough
    )
    before = hypothesis.settings.default
    hypothesis.settings.load_profile("broken")
    yield
    hypothesis.settings.register_profile("before", before)
    hypothesis.settings.load_profile("before")


@pytest.fixture
def break_kernel(monkeypatch):
    """`break_kernel(patch, old, new)`: bind the patch from its source with one text replaced."""

    def apply(patch: str, old: str, new: str, file: str = "") -> None:
        path = KERNELS / (file or f"{patch}.py")
        source = path.read_text()
        assert source.count(old) >= 1, f"{path.name} no longer holds {old!r}"
        stem = f"kernels.{path.stem}"
        module = types.ModuleType(stem)
        module.__file__ = str(path)
        module.__dict__["__name__"] = stem
        monkeypatch.setitem(sys.modules, stem, module)
        exec(compile(source.replace(old, new), str(path), "exec"), module.__dict__)  # noqa: S102
        if file:  # a part that the patch imports: load the patch anew, so that it sees it
            apply(patch, "PATCH", "PATCH")
            return
        table = tuple(module.PATCH if p.name == patch else p for p in kernels.ops.PATCHES)
        monkeypatch.setattr(kernels.ops, "PATCHES", table)
        binding._bind.cache_clear()

    yield apply
    binding._bind.cache_clear()


@pytest.fixture
def examine():
    """`examine(patch)`: an empty examination on the CPU."""
    settings = dataclasses.replace(resolve_microtests({}, environ={}), device="cpu")
    return lambda patch: Examination(patch, settings)
