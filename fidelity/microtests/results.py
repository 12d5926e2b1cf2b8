"""What is written down of one patch: its checks, its verdict, and the scope in which both hold."""

import hashlib
from urllib.parse import quote

import msgspec

from fidelity.words import Ladder, PatchVerdict, Question

SCHEMA_VERSION = 1
SYNTHETIC, HARVESTED = "synthetic", "harvested"
_LONGEST_VALUE = 80


def file_words(value: str) -> str:
    """Return a value as part of a file's name: it neither leaves the folder nor is too long."""
    words = quote(value, safe=",=")
    if len(words) <= _LONGEST_VALUE:
        return words
    return f"{words[:_LONGEST_VALUE]}-{hashlib.sha256(value.encode()).hexdigest()[:12]}"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict holds for. It expires when any of these changes."""

    code: str
    """sha256 over the source files that ran and that judged."""
    dtype: str
    """Declared format, in words."""
    shapes: tuple[str, ...]
    """Each input as name[sizes], sorted; every shape that was measured."""
    data: str
    """Where the inputs come from: "synthetic", a checkpoint, a dump."""
    device: str
    """Device name and the versions of what computes on it."""
    seed: int | None = None
    """Of the synthetic inputs; None where nothing was drawn from one."""
    contents: str = ""
    """sha256 over the checkpoint and the dumps that were read; "" for none."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure and what is asked of it."""

    question: Question
    name: str
    value: float
    limit: float | None = None
    """Largest accepted value; None where no such number is asked for."""
    holds: bool | None = None
    """None: reported only, it decides nothing."""
    rung: Ladder | None = None
    where: str = ""
    """Case, output, row: where the worst value stands."""
    cases: int = 1
    """How often it was measured; the worst is shown."""
    sentence: str = ""
    """What was seen against what, in one sentence; always there when `holds` is False."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What is still selected at one context length."""

    tokens: int
    needles: int
    needles_kept: int
    jaccard: float
    """Mean over the rows measured at this length."""
    rows: int = 1


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Selection over the context's length, of one value of a patch."""

    label: str
    points: tuple[Point, ...]


class PatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one patch."""

    schema_version: int = SCHEMA_VERSION
    name: str
    verdict: PatchVerdict
    ladder: Ladder | None
    reason: str
    scope: Scope
    checks: tuple[Check, ...] = ()
    at: str = ""
    """UTC, ISO 8601."""
    source: str = SYNTHETIC
    """Of the inputs: made here, or harvested from a dump of a running engine."""
    value: str = ""
    """Of NAME=VALUE, where one was asked for."""
    curves: tuple[Curve, ...] = ()

    @property
    def stem(self) -> str:
        """Name of its file: each patch has one verdict a value and source."""
        own = f"{self.name}={file_words(self.value)}" if self.value else self.name
        return own if self.source == SYNTHETIC else f"{own}.{self.source}"

    @property
    def title(self) -> str:
        """NAME or NAME=VALUE."""
        return f"{self.name}={self.value}" if self.value else self.name
