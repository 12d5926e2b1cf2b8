"""Inputs of patches out of a dump: what the operations of a running engine really saw.

How they follow from its tensors: dumped_layers.py. `index_outlier` in a dump's metadata is done to
index keys and queries as the engine did it to its weights at load.
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reference.config import CSA
from reference.indexer import index_scores, visible_entries
from reference.safetensors_file import read_safetensors
from suites.patches.checkpoint import MOST_HEADER_BYTES, Checkpoint, ReadModel
from suites.patches.dumped_layers import DumpedLayers, NotHarvestedError
from suites.patches.index_inputs import M
from suites.patches.whole_model import TOKENS, held_whole

ROWS = 24
"""Queries of a layer that are examined: the last token, and others spread evenly before it."""
MOST_DUMPS = 8
STANDS_OUT = 2.0
"""A needle's true score, as a multiple of that of the last entry selected."""


class Indexed(NamedTuple):
    """One layer's indexer on one request: arguments as `index_inputs.sequences`, and where."""

    where: str
    arguments: dict[str, Any]
    scores: Tensor
    needles: Tensor


@dataclass(frozen=True, slots=True)
class Harvest:
    """A folder of dumps and the checkpoint that they were made with."""

    folder: Path
    checkpoint: Checkpoint

    @property
    def label(self) -> str:
        """What a verdict on these inputs holds for: files by content, and the checkpoint."""
        digest = hashlib.sha256()
        for path in self.files():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        used, every = len(self.files()), len(self._every())
        told = f"{used} of {every} dumps" if used < every else f"{every} dumps"
        return f"harvested ({told}, {digest.hexdigest()[:12]}; {self.checkpoint.folder.name})"

    def files(self) -> list[Path]:
        """The dumps that are examined: of requests without a cached prefix, MOST_DUMPS at most.

        Raises: ValueError: the folder holds none.
        """
        cold = [path for path in self._every() if _metadata(path).get("first_position") == "0"]
        if not cold:
            raise ValueError(
                f"inputs: each of the {len(self._every())} *.safetensors in {self.folder} begins"
                " behind a cached prefix or is no dump; accepted: a folder that --dump-activations"
                " wrote, with a request whose prefix was not cached"
            )
        return cold[:MOST_DUMPS]

    def _every(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    def layers(self) -> Iterator[DumpedLayers]:
        """Each dump that is examined, one after the other."""
        model = ReadModel(self.checkpoint)
        for path in self.files():
            rows, metadata = read_safetensors(path)
            factor = _factor(path.name, metadata.get("index_outlier", "1"))
            ids = metadata.get("token_ids")
            tokens = None if ids is None else _tokens(path.name, ids)
            yield DumpedLayers(path.name, model, rows, tokens, factor)

    def opening(self) -> Tensor:
        """Token ids of the first dump, for its text at the logits; TOKENS at most.

        Raises: NotHarvestedError: the dump does not say them, or the checkpoint is too large.
        """
        folder = self.checkpoint.folder
        if held_whole(folder) != folder:
            raise NotHarvestedError(
                f"checkpoint: {folder.name} is too large to be run as a whole, so that the dumped"
                " text has no logits"
            )
        return next(self.layers()).tokens()[:TOKENS]

    def indexed(self) -> Iterator[Indexed]:
        """What each indexer saw of each dump, where it had to leave entries out.

        Raises: ValueError: a dump lacks a layer's input, or none is long enough for a choice.
        """
        config = self.checkpoint.config
        if config.rates[CSA] != M:
            raise ValueError(f"checkpoint: {config.rates[CSA]} tokens an index key; accepted: {M}")
        some = False
        for dump in self.layers():
            for layer, kind in enumerate(config.layer_kinds):
                if kind != CSA:
                    continue
                given = dump.index(layer)
                if len(given["keys"]) <= config.index_topk:
                    continue
                some = True
                yield self._indexed(f"{Path(dump.name).stem} layer {layer}", **given)
        if not some:
            raise ValueError(
                f"inputs: no dump in {self.folder} has more than {config.index_topk} entries, so"
                f" nothing had to be selected; accepted: more than"
                f" {config.index_topk * config.rates[CSA]} tokens"
            )

    def _indexed(self, where: str, q: Tensor, keys: Tensor, weights: Tensor) -> Indexed:
        c = self.checkpoint.config
        m = c.rates[CSA]
        first = (c.index_topk + 1) * m - 1  # the first token that must leave an entry out
        rows = spread(first, len(q))
        visible = visible_entries(rows, m)
        scores = index_scores(q[rows], keys, weights[rows])
        arguments = {
            "q": q[rows],
            "keys": keys.expand(len(rows), -1, -1),
            "weights": weights[rows],
            "positions": rows,
            "topk": c.index_topk,
        }
        return Indexed(where, arguments, scores, needles_in(scores, visible, c.index_topk))


def spread(first: int, tokens: int) -> Tensor:
    """ROWS positions from `first` to the last of so many tokens, int64; fewer where there are."""
    even = torch.linspace(first, tokens - 1, min(ROWS, tokens - first)).tolist()
    return torch.tensor(sorted({int(position) for position in even}))


def _factor(name: str, text: str) -> float:
    """What a dump says of its outlier.

    Raises: ValueError: no finite number above zero.
    """
    try:
        factor = float(text or 1)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise ValueError(
            f"inputs: {name}, index_outlier: got {text[:40]!r}; accepted: a finite number > 0"
        )
    return factor


def _tokens(name: str, text: str) -> Tensor:
    """Token ids that a dump says.

    Raises: ValueError: no JSON list of whole numbers.
    """
    try:
        ids = json.loads(text)
    except ValueError:
        ids = None
    if not isinstance(ids, list) or not ids or any(type(number) is not int for number in ids):
        raise ValueError(
            f"inputs: {name}, token_ids: got {text[:40]!r}; accepted: a JSON list of token ids"
        )
    return torch.tensor(ids)


def _metadata(path: Path) -> dict[str, str]:
    """Texts in the header of a safetensors file; {} of anything else."""
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, MOST_HEADER_BYTES)))
        return dict(header.get("__metadata__", {}))
    except (OSError, struct.error, ValueError, AttributeError, TypeError):
        return {}


def needles_in(scores: Tensor, visible: Tensor, topk: int) -> Tensor:
    """The entry that each query wants most, where it stands out; -1 elsewhere.

    It stands out with a true score at least STANDS_OUT times that of the last entry selected: no
    rounding of the scores by less than a third can then lose it.

    Args:
        scores: true ones [T, E].
        visible: int [T], each > topk.
        topk: entries selected.
    """
    needles = []
    for row, count in zip(scores, visible.tolist(), strict=True):
        best = row[:count].topk(topk)
        last, first = float(best.values[-1]), float(best.values[0])
        stands_out = first > 0 and first >= STANDS_OUT * last
        needles.append(int(best.indices[0]) if stands_out else -1)
    return torch.tensor(needles)
