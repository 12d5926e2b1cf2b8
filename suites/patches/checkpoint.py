"""A checkpoint of which only the tensors that are asked for are read.

Asked by Hugging Face names; found under those, under upstream's, or under the mixture that
`save_pretrained` writes. Stored in fp8 tiles, MXFP4 or NVFP4, it comes out in float32.
"""

import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reference.config import Config, read_config
from reference.formats import dequantise_mxfp4, dequantise_nvfp4
from reference.model import Model
from reference.safetensors_file import DTYPES
from suites.patches.checkpoint_names import names_of, scales_of

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
TILE = 128
MOST_HEADER_BYTES = 100_000_000
_EXPERTS = re.compile(r"(.*\.mlp\.experts)\.(gate_up|down)_proj")


class _Place(NamedTuple):
    """Where a tensor lies in its file."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int

    def rows(self, first: int) -> "_Place":
        """The first rows of it."""
        count = min(first, self.shape[0])
        size = (self.end - self.begin) // max(1, self.shape[0])
        return self._replace(shape=(count, *self.shape[1:]), end=self.begin + size * count)


class Checkpoint:
    """A folder with config.json and safetensors files.

    Attributes:
        read: names of the tensors that were read so far, as they are stored.
    """

    def __init__(self, folder: Path) -> None:
        """Read the index, or the header of the only file; no tensor.

        Raises: ValueError: neither is there, or it cannot be used.
        """
        self.folder = folder
        self.read: list[str] = []
        self._headers: dict[Path, dict[str, _Place]] = {}
        index = folder / INDEX
        self._searched = index if index.exists() else folder / SINGLE
        if index.exists():
            self._files = _shards(index)
        else:
            self._files = dict.fromkeys(self._header(self._searched), self._searched)

    @property
    def config(self) -> Config:
        """What config.json says."""
        return read_config(self.folder)

    @property
    def stored_bytes(self) -> int:
        """Size of all its files."""
        files = {path for path in self._files.values() if path.exists()}
        return sum(path.stat().st_size for path in files)

    def tensor(self, name: str) -> Tensor:
        """A tensor by its Hugging Face name; float32, or the integers that it holds.

        Stacked experts are put together from single ones where those are stored.

        Raises: ValueError: it is not there, or cannot be read; says what was searched and tried.
        """
        tried = list(names_of(name))
        for candidate in tried:
            if candidate in self._files:
                return self._floats(candidate)
        stacked = _EXPERTS.fullmatch(name)
        if stacked:
            return self._stacked(*stacked.groups())
        raise ValueError(self._missing(name, tried))

    def expert(self, prefix: str, expert: int, part: str) -> Tensor:
        """One expert's matrix: part gate, up or down, of PREFIX.mlp.experts."""
        single = f"{prefix}.{expert}.{part}_proj.weight"
        tried = list(names_of(single))
        for candidate in tried:
            if candidate in self._files:
                return self._floats(candidate)
        raise ValueError(self._missing(single, tried))

    def experts(self, layer: int, count: int) -> dict[str, Tensor]:
        """gate_up [count, 2I, H] and down [count, H, I] of a layer's first experts, float32.

        Raises: ValueError: as `tensor`.
        """
        prefix = f"model.layers.{layer}.mlp.experts"
        if f"{prefix}.down_proj" in self._files:
            return {
                part: self._floats(f"{prefix}.{part}_proj", first=count)
                for part in ("gate_up", "down")
            }
        each = range(count)
        both = [[self.expert(prefix, e, part) for part in ("gate", "up")] for e in each]
        return {
            "gate_up": torch.stack([torch.cat(pair) for pair in both]),
            "down": torch.stack([self.expert(prefix, e, "down") for e in each]),
        }

    def _stacked(self, prefix: str, part: str) -> Tensor:
        count = self._experts(prefix)
        if part == "down":
            return torch.stack([self.expert(prefix, e, "down") for e in range(count)])
        both = ([self.expert(prefix, e, one) for one in ("gate", "up")] for e in range(count))
        return torch.stack([torch.cat(pair) for pair in both])

    def _experts(self, prefix: str) -> int:
        """How many experts there are, by their names; at least one, so that it is missed."""
        first = range(len(self._files))
        known = (e for e in first if not self._has(f"{prefix}.{e}.down_proj.weight"))
        return max(1, next(known, 0))

    def _has(self, name: str) -> bool:
        return any(candidate in self._files for candidate in names_of(name))

    def _missing(self, name: str, tried: list[str]) -> str:
        return (
            f"checkpoint: {self.folder} has no tensor {name!r}: searched {self._searched.name}"
            f" ({len(self._files)} tensors), tried {', '.join(tried)}"
        )

    def _floats(self, name: str, first: int | None = None) -> Tensor:
        """The tensor as stored, its scales applied; only its first rows where that is asked."""
        stored = self._raw(name, first)
        scales = {kind: n for kind, n in scales_of(name).items() if n in self._files}
        if stored.dtype is torch.float8_e4m3fn:
            return self._tiles(name, stored, scales)
        if stored.dtype in (torch.int8, torch.uint8):
            return self._fp4(name, stored.view(torch.uint8), scales)
        return stored.float() if stored.is_floating_point() else stored

    def _tiles(self, name: str, stored: Tensor, scales: dict[str, str]) -> Tensor:
        """fp8 with a scale for each square of TILE x TILE."""
        kind = next((kind for kind in ("scale", "weight_scale_inv") if kind in scales), None)
        if kind is None:
            raise ValueError(self._without_scales(name, "fp8"))
        scale = self._raw(scales[kind]).float()
        if stored.dim() != 2:
            raise ValueError(
                f"checkpoint: {self._files[name]} holds {name!r} in fp8 with shape"
                f" {list(stored.shape)}; accepted: a matrix"
            )
        need = [-(-size // TILE) for size in stored.shape]
        if list(scale.shape) != need:
            raise ValueError(
                f"checkpoint: {self._files[scales[kind]]} holds {scales[kind]!r} with shape"
                f" {list(scale.shape)}; accepted: {need}, a scale for each {TILE} x {TILE} of"
                f" {name!r} {list(stored.shape)}"
            )
        wide = scale.repeat_interleave(TILE, 0).repeat_interleave(TILE, 1)
        return stored.float() * wide[: stored.shape[0], : stored.shape[1]]

    def _fp4(self, name: str, packed: Tensor, scales: dict[str, str]) -> Tensor:
        """Two codes a byte: NVFP4 has two levels of scales, MXFP4 one of powers of two."""
        if {"weight_scale", "weight_scale_2"} <= scales.keys():
            blocks, whole = (self._raw(scales[kind]) for kind in ("weight_scale", "weight_scale_2"))
            self._check_blocks(name, packed, scales["weight_scale"], blocks, 16)
            return dequantise_nvfp4(packed, blocks, whole.float())
        if "scale" in scales:
            powers = self._raw(scales["scale"])
            self._check_blocks(name, packed, scales["scale"], powers, 32)
            return dequantise_mxfp4(packed, powers.view(torch.uint8))
        raise ValueError(self._without_scales(name, "fp4"))

    def _check_blocks(
        self, name: str, packed: Tensor, sibling: str, scales: Tensor, block: int
    ) -> None:
        """Refuse scales of another number than blocks, or wider than the byte that one is."""
        need = [*packed.shape[:-1], 2 * packed.shape[-1] // block if packed.dim() else 0]
        if list(scales.shape) != need or scales.element_size() != 1:
            raise ValueError(
                f"checkpoint: {self._files[sibling]} holds {sibling!r}, {scales.dtype}"
                f" {list(scales.shape)}; accepted: a byte for each {block} of {name!r}, {need}"
            )

    def _without_scales(self, name: str, kind: str) -> str:
        return (
            f"checkpoint: {self._files[name]} holds {name!r} in {kind} without its scales: searched"
            f" {self._searched.name} ({len(self._files)} tensors), tried"
            f" {', '.join(scales_of(name).values())}"
        )

    def _raw(self, name: str, first: int | None = None) -> Tensor:
        file = self._files[name]
        place = self._header(file).get(name)
        if place is None:
            raise ValueError(f"checkpoint: {file} has no tensor {name!r}, which its index names")
        self.read.append(name)
        if first is not None:
            place = place.rows(first)
        try:
            with file.open("rb") as stream:
                stream.seek(place.begin)
                rows = bytearray(stream.read(place.end - place.begin))
        except OSError as error:
            raise ValueError(f"checkpoint: {file} cannot be read: {error}") from error
        if len(rows) != place.end - place.begin:
            raise ValueError(f"checkpoint: {file} is cut off inside {name!r}")
        if not rows:
            return torch.empty(place.shape, dtype=place.dtype)
        flat = torch.frombuffer(rows, dtype=torch.uint8)
        return flat.view(place.dtype).reshape(place.shape)

    def _header(self, file: Path) -> dict[str, _Place]:
        if file not in self._headers:
            self._headers[file] = dict(_places(file))
        return self._headers[file]


class ReadModel(Model):
    """The reference model over a checkpoint under any of these names."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config = checkpoint.config
        self.folder = checkpoint.folder
        self.tensors = {}
        self._checkpoint = checkpoint

    def weight(self, name: str) -> Tensor:
        """A tensor, read at its first use; ValueError names one that is not there."""
        if name not in self.tensors:
            self.tensors[name] = self._checkpoint.tensor(name)
        return self.tensors[name]


def _shards(index: Path) -> dict[str, Path]:
    try:
        named: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        outside = [name for name in named.values() if Path(name).name != name]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint: {index} is no index of shards: {error}") from error
    if outside:
        raise ValueError(f"checkpoint: {index} names a shard outside its own folder: {outside[0]}")
    return {name: index.parent / file for name, file in named.items()}


class _UnfitError(ValueError):
    """A header that can be read, and describes a tensor that cannot be."""


def _place(file: Path, name: str, entry: Any, start: int) -> _Place:
    """Where the header says that a tensor lies.

    Raises: ValueError: not behind the header, or shape and dtype need another number of bytes.
    """
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise _UnfitError(
            f"checkpoint: {file} says of {name!r} dtype {str(entry['dtype'])[:40]!r}; accepted:"
            f" {', '.join(DTYPES)}"
        )
    dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if not all(type(number) is int for number in (begin, end, *shape)):
        raise _UnfitError(f"checkpoint: {file} says of {name!r} no whole numbers")
    if min(shape, default=0) < 0 or not 0 <= begin <= end:
        raise _UnfitError(
            f"checkpoint: {file} says of {name!r} shape {list(shape)} in bytes {begin} to {end};"
            " accepted: sizes from 0, and bytes behind the header, in order"
        )
    need = math.prod(shape) * dtype.itemsize
    if end - begin != need:
        raise _UnfitError(
            f"checkpoint: {file} says of {name!r} shape {list(shape)} of {entry['dtype']}, which is"
            f" {need} bytes, in {end - begin} bytes"
        )
    return _Place(file, dtype, shape, start + begin, start + end)


def _places(file: Path) -> Iterator[tuple[str, _Place]]:
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            # of a damaged file: json.loads then says what it found
            header: dict[str, Any] = json.loads(stream.read(min(length, MOST_HEADER_BYTES)))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            yield name, _place(file, name, entry, 8 + length)
    except _UnfitError:
        raise
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint: {file} cannot be read as safetensors: {error}") from error
