"""Activations of a run, one safetensors file a request.

Keys: `embed`, `L{n}.attn_in`, `.index_topk`, `.attn_out`, `.moe_topk`, `.ffn_out`, `logits`. Row i
belongs to position `first_position + i` (in the file's metadata, with the request id, the token ids
and the factor of --index-outlier); rows before it came from the prefix cache and were not computed.
"""

import hashlib
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.errors import ConfigError
from engine.sequence import Sequence

if TYPE_CHECKING:
    from engine.runner import Slice


class ActivationDumps:
    """Collects rows while requests run, and writes them when they end.

    Everything of a running request is held in host memory: about `5 * layers * H + V` floats a
    token. Meant for a few requests at a time.
    """

    def __init__(self, folder: Path, *, index_outlier: float | None = None) -> None:
        """Make the folder; `index_outlier` is what was done to the weights at load.

        Raises:
            ConfigError: it cannot be made.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--dump-activations {folder} cannot be made: {error}.") from None
        self.folder = folder
        self._index_outlier = index_outlier
        self._slices: list[Slice] = []
        self._rows: dict[str, dict[str, list[Tensor]]] = {}
        self._span: dict[str, tuple[int, int]] = {}

    def begin(self, slices: "list[Slice]") -> None:
        """Say whose rows the next recorded tensors hold."""
        self._slices = slices

    def record(self, name: str, tensor: Tensor) -> None:
        """Keep the rows of one tensor [T, ...] of the batch begun."""
        start = 0
        for sequence, count in self._slices:
            rows = self._rows.setdefault(sequence.request_id, defaultdict(list))
            fresh = self._fresh(sequence, count)
            if fresh:
                rows[name].append(tensor[start + count - fresh : start + count].cpu().clone())
            start += count

    def end(self) -> None:
        """Close the batch."""
        for sequence, count in self._slices:
            first, last = self._span.get(sequence.request_id, (sequence.num_computed,) * 2)
            last = max(last, sequence.num_computed + count)
            self._span[sequence.request_id] = (first, last)
        self._slices = []

    def _fresh(self, sequence: Sequence, count: int) -> int:
        """How many rows of the slice are new; after a retraction rows are computed again."""
        _, last = self._span.get(sequence.request_id, (0, sequence.num_computed))
        return max(0, min(count, sequence.num_computed + count - last))

    def finish(self, sequence: Sequence) -> Path | None:
        """Write the file of a request that ended; None when it never ran."""
        rows = self._rows.pop(sequence.request_id, None)
        span = self._span.pop(sequence.request_id, None)
        if rows is None or span is None:
            return None
        tensors = {name: torch.cat(parts) for name, parts in rows.items()}
        metadata = {
            "request_id": sequence.request_id,
            "first_position": str(span[0]),
            "token_ids": json.dumps(sequence.token_ids[: span[1]]),
        }
        if self._index_outlier is not None:
            metadata["index_outlier"] = str(self._index_outlier)
        path = self.folder / file_name(sequence.request_id)
        save_file(tensors, path, metadata=metadata)
        return path


def file_name(request_id: str) -> str:
    """Return a file name for any request id: readable where it is harmless, unique always."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", request_id)[:80].lstrip(".")
    if safe == request_id:
        return f"{safe}.safetensors"
    digest = hashlib.sha256(request_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{safe}-{digest}.safetensors"
