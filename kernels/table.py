"""The table of patches: explicit, in reading order. A patch that is not here does not exist."""

from kernels import (
    fp8_kv,
    index_keys,
    indexer_triton,
    mhc_bf16,
    moe_routed_scaling,
    mxfp4_experts,
    nvfp4_experts,
    splitk_decode,
    swiglu_clamp,
)
from kernels.patch import Binding, Installation, Patch, PatchUnsupported

MOST_ENTRIES = 1 << 18  # a million tokens at the smallest published rate, 4


def _parse_topk(binding: Binding) -> int:
    value = binding.value
    digits = value.isascii() and value.isdecimal() and len(value) < 10
    if not digits or not 1 <= int(value) <= MOST_ENTRIES:
        raise PatchUnsupported("index_topk", f"value {value[:40]!r}; accepted: 1..{MOST_ENTRIES}")
    return int(value)


# A setting: it has no kernel, hence no file, but it changes what a query may read.
INDEX_TOPK = Patch(
    name="index_topk",
    phase="config",
    ops=("index_select",),
    values="a whole number of compressed entries >= 1",
    baseline_value=lambda settings: str(settings.index_topk),
    parse=_parse_topk,
    summary="how many compressed entries a query may read",
    source="config key index_topk of DeepSeek-V4",
)


def _parse_thinking(binding: Binding) -> bool:
    if binding.value not in ("on", "off"):
        raise PatchUnsupported(
            "default_thinking", f"value {binding.value[:40]!r}; accepted: on, off"
        )
    return binding.value == "on"


def _install_thinking(into: Installation) -> None:
    def default_thinking() -> bool:
        into.count()
        return True

    into.functions["default_thinking"] = default_thinking


# Changes what the chat encoder writes where a request does not say whether to think.
DEFAULT_THINKING = Patch(
    name="default_thinking",
    phase="encoding",
    ops=("patch.default_thinking",),
    values="on | off",
    bare="on",
    baseline_value=lambda _settings: "off",
    parse=_parse_thinking,
    install=_install_thinking,
    summary="default thinking mode of the chat encoder",
    source="SGLANG_DEFAULT_THINKING in SGLang's chat serving",
)

PATCHES: tuple[Patch, ...] = (
    index_keys.PATCH,
    INDEX_TOPK,
    mhc_bf16.PATCH,
    moe_routed_scaling.PATCH,
    nvfp4_experts.PATCH,
    mxfp4_experts.PATCH,
    swiglu_clamp.PATCH,
    fp8_kv.PATCH,
    indexer_triton.PATCH,
    splitk_decode.PATCH,
    DEFAULT_THINKING,
)

if len({patch.name for patch in PATCHES}) != len(PATCHES):
    raise ValueError("two patches in kernels/table.py have one name; each name must be unique")
