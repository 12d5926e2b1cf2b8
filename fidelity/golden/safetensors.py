"""Reads safetensors files with the standard library: dumps are compared where no torch is.

Format: eight bytes of header length, a JSON header (name -> dtype, shape, data_offsets), the data.
"""

import json
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fidelity.errors import ConfigError

_MOST_HEADER_BYTES = 100_000_000
_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8}

Row = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a file; `rows` along its first axis, the rest flattened."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @property
    def rows(self) -> int:
        """Length of the first axis."""
        return self.shape[0] if self.shape else 1

    def raw(self, index: int) -> memoryview:
        """Return the bytes of one row."""
        size = len(self.data) // max(1, self.rows)
        return self.data[index * size : (index + 1) * size]

    def row(self, index: int) -> Row:
        """Return one row as numbers."""
        raw = self.raw(index).tobytes()
        if self.dtype == "F16":
            return struct.unpack(f"<{len(raw) // 2}e", raw)
        if self.dtype == "BF16":
            halves = _native(array("H", raw))
            return array("f", array("I", (half << 16 for half in halves)).tobytes())
        return _native(array({"F32": "f", "I32": "i", "I64": "q"}[self.dtype], raw))


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A whole file: its tensors by name, and the texts of its metadata."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def read(path: Path) -> File:
    """Read a file.

    Raises:
        ConfigError: it cannot be read, is no safetensors file, or holds a dtype that we do not
            read; names the file and the tensor.
    """
    try:
        whole = memoryview(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    size = int.from_bytes(whole[:8], "little") if len(whole) >= 8 else 0
    if not 2 <= size <= min(_MOST_HEADER_BYTES, len(whole) - 8):
        raise ConfigError(f"{path} is no safetensors file: its header cannot have {size} bytes")
    try:
        header: dict[str, Any] = json.loads(whole[8 : 8 + size].tobytes())
        metadata = header.pop("__metadata__", {})
        data = whole[8 + size :]
        tensors = {name: _tensor(path, name, entry, data) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no safetensors file: {error}") from error
    return File(path=path, tensors=tensors, metadata={str(k): str(v) for k, v in metadata.items()})


def _tensor(path: Path, name: str, entry: dict[str, Any], data: memoryview) -> Tensor:
    dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
    begin, end = (int(place) for place in entry["data_offsets"])
    if dtype not in _ITEM_BYTES:
        known = ", ".join(_ITEM_BYTES)
        raise ConfigError(f"{path}: {name} is of dtype {dtype}, which is none of {known}")
    items = 1
    for n in shape:
        items *= n
    if not 0 <= begin <= end <= len(data) or end - begin != items * _ITEM_BYTES[dtype]:
        raise ConfigError(f"{path}: {name} does not fill the place that its header gives it")
    return Tensor(name=name, dtype=dtype, shape=shape, data=data[begin:end])


def _native(values: "array[Any]") -> "array[Any]":
    if sys.byteorder == "big":
        values.byteswap()
    return values
