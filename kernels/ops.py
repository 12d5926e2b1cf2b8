"""Binding: from patch names to the set of ops that a model calls."""

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import torch

from kernels.baseline import attention, compress, indexer, mhc, moe, norms, output, pages
from kernels.checks import refuse
from kernels.expert_parts import expert_functions
from kernels.index_keys import IndexKeys
from kernels.native.build import load_library
from kernels.native.ops import NativeOps
from kernels.patch import (
    Binding,
    Installation,
    Patch,
    PatchUnsupported,
    Settings,
    UnknownPatch,
    split_request,
)
from kernels.table import PATCHES

OP_NAMES = (
    "rms_norm", "rope", "norm_rope", "mhc_pre", "mhc_post", "mhc_head", "linear", "store_window",
    "compress", "store_entries", "index_select", "sparse_attention", "route", "experts",
    "shared_expert", "grouped_output",
)  # fmt: skip


class Ops:
    """Bound operations, by name. Every call is counted in `calls`.

    Each name is a plain attribute, so that a fault may replace it on this instance; whoever holds
    an `Ops` looks the name up at call time. Nothing here is global. One thread calls at a time.

    Attributes:
        calls: op name -> calls since binding; "patch.NAME" -> runs of that patch's own code.
        implementation: "native" or "torch", what the ops really are.
        index_keys: allocate, store, read of index keys in the bound format.
        index_topk: compressed entries that a query may read.
    """

    rms_norm: Callable[..., Any]
    rope: Callable[..., Any]
    norm_rope: Callable[..., Any]
    mhc_pre: Callable[..., Any]
    mhc_post: Callable[..., Any]
    mhc_head: Callable[..., Any]
    linear: Callable[..., Any]
    store_window: Callable[..., Any]
    compress: Callable[..., Any]
    store_entries: Callable[..., Any]
    index_select: Callable[..., Any]
    sparse_attention: Callable[..., Any]
    route: Callable[..., Any]
    experts: Callable[..., Any]
    shared_expert: Callable[..., Any]
    grouped_output: Callable[..., Any]
    default_thinking: Callable[[], bool]

    def __init__(
        self,
        functions: dict[str, Callable[..., Any]],
        *,
        implementation: str,
        index_keys: IndexKeys,
        index_topk: int,
        patches: Sequence[tuple[Patch, str, bool]],
        calls: dict[str, int],
    ) -> None:
        self.calls = calls
        self.implementation = implementation
        self.index_topk = index_topk
        self._patches = tuple(patches)
        store = functions.pop("index_keys.store", index_keys.store)
        for name, function in functions.items():
            setattr(self, name, self._counted(name, function))
        self.index_keys = index_keys
        index_keys.store = self._counted("index_keys.store", store)  # type: ignore[method-assign]

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = self.calls
        calls[name] = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return function(*args, **kwargs)

        return update_wrapper(counted, function)

    def patch_states(self) -> list[dict[str, Any]]:
        """Every patch of the table, on or off: name, state, calls (0 when off), value."""
        return [
            {
                "name": patch.name,
                "state": "on" if on else "off",
                "calls": sum(self.calls[op] for op in patch.ops) if on else 0,
                "value": value,
            }
            for patch, value, on in self._patches
        ]


def _requested(patches: Sequence[str]) -> dict[str, str]:
    known = {patch.name: patch for patch in PATCHES}
    wanted: dict[str, str] = {}
    for text in patches:
        name, value = split_request(text)
        if name not in known:
            raise UnknownPatch(name, tuple(known))
        if name in wanted and wanted[name] != value:
            raise PatchUnsupported(name, f"asked for twice, as {wanted[name]!r} and {value!r}")
        wanted[name] = value
    return wanted


def _torch_functions(keys: IndexKeys) -> dict[str, Callable[..., Any]]:
    modules = (attention, compress, mhc, moe, norms, output, pages)
    functions = {n: getattr(m, n) for m in modules for n in OP_NAMES if hasattr(m, n)}
    functions["index_select"] = indexer.bind_index_select(keys)
    return functions


def _implementation(wanted: str, device: torch.device, dtype: torch.dtype) -> str:
    native_fits = device.type == "cpu" and dtype is torch.float32
    if wanted == "auto":
        return "native" if native_fits else "torch"
    if wanted not in ("native", "torch"):
        refuse("implementation", repr(wanted), "auto, native, torch")
    if wanted == "native" and not native_fits:
        refuse("implementation", f"native with {dtype} on {device}", "native with float32 on cpu")
    return wanted


def bind(
    patches: Sequence[str], *, device: str | torch.device, dtype: torch.dtype, settings: Settings
) -> Ops:
    """Choose each op once: baseline where its patch is off, candidate where it is on.

    Args:
        patches: "NAME" or "NAME=VALUE", in any order. A value equal to the baseline's is "off".
        device: where the model runs.
        dtype: of weights and activations.
        settings: what the model and the user say.


    Raises:
        UnknownPatch: no such name; names the closest.
        PatchUnsupported: the value does not fit; never a silent fall-back.
        NativeUnavailable: native ops were chosen and cannot be built; never a silent fall-back.
        ValueError: an unknown implementation, or native off the CPU or not in fp32.
    """
    device = torch.device(device)
    wanted = _requested(patches)
    states: list[tuple[Patch, str, bool]] = []
    parsed: dict[str, Any] = {}
    bindings: dict[str, Binding] = {}
    for patch in PATCHES:
        off = patch.baseline_value(settings)
        value = wanted.get(patch.name, off) or patch.bare or ""
        bindings[patch.name] = Binding(value=value, settings=settings, device=device, dtype=dtype)
        parsed[patch.name] = patch.parse(bindings[patch.name])
        states.append((patch, value, value != off))
    keys: IndexKeys = parsed["index_keys"]
    implementation = _implementation(settings.implementation, device, dtype)
    if implementation == "native":
        functions = NativeOps(load_library(), keys).functions(OP_NAMES)
    else:
        functions = _torch_functions(keys)
    functions["default_thinking"] = lambda: parsed["default_thinking"]
    calls: dict[str, int] = {}
    for patch, _, on in states:
        if on and patch.install is not None:
            patch.install(
                Installation(
                    functions=functions,
                    parsed=parsed[patch.name],
                    binding=bindings[patch.name],
                    count=_counter(calls, patch.ops[0]),
                )
            )
    _join_experts(functions)
    return Ops(
        functions,
        implementation=implementation,
        index_keys=keys,
        index_topk=parsed["index_topk"],
        patches=states,
        calls=calls,
    )


def _counter(calls: dict[str, int], name: str) -> Callable[[], None]:
    calls[name] = 0

    def count() -> None:
        calls[name] += 1

    return count


def _join_experts(functions: dict[str, Callable[..., Any]]) -> None:
    """Patches may replace the product with an expert's weights, its activation, or both."""
    product, activation = functions.pop("_expert_product", None), functions.pop("_swiglu", None)
    if product is not None or activation is not None:
        functions.update(expert_functions(product, activation, functions["shared_expert"]))
