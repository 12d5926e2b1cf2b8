"""Activations of a request as one safetensors file, with the keys of the engine's dumps."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from reference.safetensors_file import write_safetensors


def write_dump(
    folder: Path, request_id: str, token_ids: Sequence[int], rows: Mapping[str, Tensor]
) -> Path:
    """Write the rows of every position of `token_ids`; returns the file."""
    metadata = {
        "request_id": request_id,
        "first_position": "0",
        "token_ids": json.dumps(list(token_ids)),
    }
    path = folder / file_name(request_id)
    write_safetensors(path, rows, metadata)
    return path


def file_name(request_id: str) -> str:
    """A harmless file name, different for different ids."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", request_id)[:80].lstrip(".")
    if safe != request_id:
        safe += "-" + hashlib.sha256(request_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{safe}.safetensors"
