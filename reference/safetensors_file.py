"""The safetensors format: an 8-byte length, a JSON header, then raw little-endian rows."""

import ctypes
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a file by name, and its metadata.

    Raises: ValueError: the file is missing, cut off, or no safetensors file.
    """
    try:
        raw = bytearray(path.read_bytes())
        (length,) = struct.unpack_from("<Q", raw)
        header: dict[str, Any] = json.loads(raw[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor(raw, 8 + length, entry) for name, entry in header.items()}
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error
    return tensors, metadata


def _tensor(raw: bytearray, start: int, entry: dict[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= len(raw) - start:
        raise ValueError(f"rows {begin} to {end} lie outside the file")
    dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    rows = torch.frombuffer(raw, dtype=torch.uint8, offset=start + begin, count=end - begin)
    return rows.clone().view(dtype).reshape(shape)  # a copy, since rows may lie unaligned


def read_checkpoint(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint: model.safetensors, or the shards that its index names.

    Raises: ValueError: a file is missing or damaged, or the index names another folder.
    """
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return read_safetensors(folder / "model.safetensors")[0]
    names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    if any(Path(name).name != name for name in names):
        raise ValueError(f"{index} names a shard outside its own folder")
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        tensors |= read_safetensors(folder / name)[0]
    return tensors


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a file that every safetensors reader reads; rows in the order of the names."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    rows: list[bytes] = []
    offset = 0
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = ctypes.string_at(flat.data_ptr(), flat.nbytes) if flat.numel() else b""
        end = offset + len(data)
        entry = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape)}
        header[name] = {**entry, "data_offsets": [offset, end]}
        rows.append(data)
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(rows))
