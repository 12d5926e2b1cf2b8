"""What a patch is: one named change to the ops, asked for as "NAME" or "NAME=VALUE"."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


class PatchError(ValueError):
    """Root of what binding refuses."""


class UnknownPatch(PatchError):
    """No patch of this name is in the table."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        super().__init__(f"unknown patch {name[:80]!r}{hint} Known: {', '.join(sorted(known))}")


class PatchUnsupported(PatchError):
    """The patch exists, but not with this value, device, dtype or model."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"patch {name} is not supported here: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What binding must know of the model and of the user's choice.

    Attributes:
        index_topk: compressed entries that a query may read, from the model's config, >= 1.
        index_head_dim: channels of an index key.
        head_dim: channels of a kv row; 0 where nobody said so.
        rope_dim: rotated channels at its end.
        implementation: "native" (fused C, CPU only), "torch" (plain operations, any device), or
            "auto": native on the CPU, torch elsewhere.
    """

    index_topk: int
    index_head_dim: int
    implementation: str = "auto"
    head_dim: int = 0
    rope_dim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a patch's `parse` is given."""

    value: str
    settings: Settings
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What a patch's `install` is given.

    Attributes:
        functions: op name -> function, as the patches before it in the table left them; replaced in
            place. Names that begin with "_" are parts of ops, see `kernels.ops`.
        parsed: what `parse` made of the value.
        binding: as `parse` was given it.
        count: to be called at each run of the patch's own code.
    """

    functions: dict[str, Callable[..., Any]]
    parsed: Any
    binding: Binding
    count: Callable[[], None]

    @property
    def on_gpu(self) -> bool:
        """Whether the Triton kernel is bound, rather than its arithmetic in torch."""
        return self.binding.device.type == "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One entry of the table.

    Attributes:
        name: as in `--patch NAME`; equals the stem of its file, if it has one.
        phase: "prefill", "decode", "both", "encoding" or "config".
        unconditional: True when it has no toggle in the stack that it models.
        ops: names in `Ops.calls` whose sum proves that it ran.
        values: the accepted values in words, for messages.
        baseline_value: the value that stands for "off".
        bare: the value that a bare NAME stands for; None: NAME needs a value.
        parse: turns the value into what `Ops` keeps under the patch's name; raises
            `PatchUnsupported`. It is called with the baseline value when the patch is off.
        install: puts the candidate in place of the ops that it changes; called only when the patch
            is on. None: a patch without a kernel.
        source: where the change comes from.
    """

    name: str
    phase: str
    ops: tuple[str, ...]
    values: str
    baseline_value: Callable[[Settings], str]
    parse: Callable[[Binding], object]
    source: str
    unconditional: bool = False
    summary: str = field(default="")
    bare: str | None = None
    install: Callable[[Installation], None] | None = None


def kernel_patch(
    name: str,
    *,
    phase: str,
    summary: str,
    source: str,
    install: Callable[[Installation], None],
    check: Callable[[Binding], Any] | None = None,
    unconditional: bool = False,
) -> Patch:
    """A patch that is on or off, with a kernel that counts its own calls.

    `check` refuses what the kernel cannot do with `PatchUnsupported`; what it returns is
    `Installation.parsed`.
    """

    def parse(binding: Binding) -> object:
        if binding.value not in ("on", "off"):
            raise PatchUnsupported(name, f"value {binding.value[:40]!r}; accepted: on, off")
        if binding.value == "off":
            return None
        if binding.device.type not in ("cpu", "cuda"):
            raise PatchUnsupported(name, f"device {binding.device}; accepted: cpu, cuda")
        if binding.device.type == "cuda":
            require_triton(name)
        return check(binding) if check else None

    return Patch(
        name=name,
        phase=phase,
        ops=(f"patch.{name}",),
        values="on | off",
        bare="on",
        baseline_value=lambda _settings: "off",
        parse=parse,
        install=install,
        summary=summary,
        source=source,
        unconditional=unconditional,
    )


def require_triton(name: str) -> None:
    """Refuse a candidate on CUDA where its kernel cannot be compiled."""
    try:
        import triton  # noqa: F401
    except ImportError:
        raise PatchUnsupported(
            name, "on CUDA its kernel needs the package triton: pip install triton"
        ) from None


def split_request(text: str) -> tuple[str, str]:
    """Split "NAME=VALUE" into (name, value); a bare "NAME" has an empty value."""
    name, _, value = text.partition("=")
    return name.strip(), value.strip()
