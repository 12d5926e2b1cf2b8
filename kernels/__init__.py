"""Ops of a DeepSeek-V4 forward over paged state, and the patches that may replace them."""

from kernels.batch import PagedBatch
from kernels.native.build import NativeUnavailable
from kernels.ops import Ops, bind
from kernels.patch import Patch, PatchError, PatchUnsupported, Settings, UnknownPatch
from kernels.table import PATCHES

__all__ = [
    "PATCHES",
    "NativeUnavailable",
    "Ops",
    "PagedBatch",
    "Patch",
    "PatchError",
    "PatchUnsupported",
    "Settings",
    "UnknownPatch",
    "bind",
]
