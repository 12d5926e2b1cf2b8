"""What a patch is: one named change to the ops, asked for as "NAME" or "NAME=VALUE"."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
        implementation: "native" (fused C, CPU only), "torch" (plain operations, any device), or
            "auto": native on the CPU, torch elsewhere.
    """

    index_topk: int
    index_head_dim: int
    implementation: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a patch's `install` is given."""

    value: str
    settings: Settings
    device: torch.device
    dtype: torch.dtype


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
        parse: turns the value into what `Ops` keeps under the patch's name; raises
            `PatchUnsupported`. It is called with the baseline value when the patch is off.
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


def split_request(text: str) -> tuple[str, str]:
    """Split "NAME=VALUE" into (name, value); a bare "NAME" has an empty value."""
    name, _, value = text.partition("=")
    return name.strip(), value.strip()
