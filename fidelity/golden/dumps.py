"""Where two deployments part inside: the first layer and token at which their dumps differ.

Both wrote `--dump-activations` for the same token ids. Keys come in the order in which a model
computes them, so the first that differs is where the difference was made; what follows inherits it.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fidelity.errors import ConfigError
from fidelity.golden.safetensors import File, Tensor, read

_STAGES = ("attn_in", "index_topk", "attn_out", "moe_topk", "ffn_out")
_LAYER = re.compile(r"L(\d+)\.(\w+)\Z")
RELATIVE = {"F32": 1e-4, "F16": 1e-2, "BF16": 5e-2}
"""How far a row may differ, as |a - b| / |a|: some 2**10 unit roundoffs of sums in another order
in float32, a dozen in the short formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """One key of one request in which the dumps differ.

    Attributes:
        request: file of the measured side.
        key: like "L3.attn_out".
        position: of the first token that differs.
        tokens: how many differ, of `compared`.
        size: of the difference there: |a - b| / |a|, or the share of a selected set that changed.
    """

    request: str
    key: str
    position: int
    tokens: int
    compared: int
    size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All requests that both sides dumped: the keys in which they part, in order of computation."""

    requests: int
    partings: tuple[Parting, ...]

    @property
    def first(self) -> Parting | None:
        """The earliest computed key that differs in any request."""
        return min(self.partings, key=lambda p: (*order_of(p.key), p.position), default=None)


def compare(measured: Path, golden: Path) -> Comparison:
    """Compare two folders of dumps, request by request; requests are matched by their token ids.

    Raises:
        ConfigError: a folder without dumps, a file that cannot be read, or no request in both.
    """
    mine, theirs = _by_ids(measured), _by_ids(golden)
    shared = [ids for ids in mine if ids in theirs]
    if not shared:
        raise ConfigError(
            f"{measured} and {golden} hold no request with the same token ids"
            f" ({len(mine)} and {len(theirs)} requests)"
        )
    partings = [p for ids in shared for p in _partings(mine[ids], theirs[ids])]
    return Comparison(requests=len(shared), partings=tuple(partings))


def lines_of(found: Comparison) -> list[str]:
    """Return the comparison as text, the first parting first."""
    first = found.first
    if first is None:
        return [f"{found.requests} requests agree in every layer and token"]
    head = (
        f"the dumps part at {first.key}, token {first.position}"
        f" ({_size_words(first)}; {first.tokens} of {first.compared} tokens differ there)"
    )
    lines = [
        head,
        f"{found.requests} requests compared; in order of computation, for {first.request}:",
    ]
    own = [p for p in found.partings if p.request == first.request]
    lines += [
        f"  {p.key:<16} from token {p.position:>6}, {p.tokens:>6} of {p.compared} tokens,"
        f" {_size_words(p)}"
        for p in own[:12]
    ]
    return lines + ([f"  and {len(own) - 12} keys more"] if len(own) > 12 else [])


def order_of(key: str) -> tuple[int, int]:
    """Return where a key comes in the computation."""
    found = _LAYER.match(key)
    if found is None:
        return (-1, 0) if key == "embed" else (1 << 30, 0)
    stage = found.group(2)
    return int(found.group(1)), _STAGES.index(stage) if stage in _STAGES else len(_STAGES)


def _size_words(parting: Parting) -> str:
    what = "of the set changed" if parting.key.endswith("topk") else "relative difference"
    return f"{parting.size:.2g} {what}"


def _by_ids(folder: Path) -> dict[tuple[int, ...], File]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(f"{folder} holds no dump (*.safetensors)")
    found: dict[tuple[int, ...], File] = {}
    for path in files:
        file = read(path)
        try:
            ids = tuple(int(i) for i in json.loads(file.metadata["token_ids"]))
        except (KeyError, ValueError, TypeError) as error:
            raise ConfigError(f"{path} does not say its token ids: it is no dump") from error
        # of several dumps of one text the one with most rows: others came in part from a cache
        held = found.get(ids)
        if held is None or _first(file) < _first(held):
            found[ids] = file
    return found


def _first(file: File) -> int:
    return int(file.metadata.get("first_position", "0"))


def _partings(mine: File, theirs: File) -> Iterator[Parting]:
    keys = sorted(mine.tensors.keys() & theirs.tensors.keys(), key=order_of)
    if not keys:
        raise ConfigError(f"{mine.path} and {theirs.path} have no key in common")
    begin = max(_first(mine), _first(theirs))
    for key in keys:
        a, b = mine.tensors[key], theirs.tensors[key]
        if a.shape[1:] != b.shape[1:] and not key.endswith("topk"):
            raise ConfigError(f"{key} has rows of {a.shape[1:]} in {mine.path} and {b.shape[1:]}")
        end = min(_first(mine) + a.rows, _first(theirs) + b.rows)
        found = _differing(a, b, range(begin, end), _first(mine), _first(theirs))
        if found:
            yield Parting(
                request=mine.path.name,
                key=key,
                position=found[0][0],
                tokens=len(found),
                compared=end - begin,
                size=found[0][1],
            )


def _differing(
    a: Tensor, b: Tensor, positions: range, first_a: int, first_b: int
) -> list[tuple[int, float]]:
    """Return (position, size) of every row that differs by more than rounding."""
    bound = max(RELATIVE.get(a.dtype, 0.0), RELATIVE.get(b.dtype, 0.0))
    found = []
    for position in positions:
        i, j = position - first_a, position - first_b
        if a.dtype == b.dtype and a.raw(i) == b.raw(j):
            continue
        if a.name.endswith("topk"):
            size = _changed(set(a.row(i)) - {-1}, set(b.row(j)) - {-1})
        else:
            size = _relative(a, b, i, j)
        if not size <= bound:  # a NaN differs
            found.append((position, size))
    return found


def _changed(mine: set[float], theirs: set[float]) -> float:
    everything = mine | theirs
    return len(mine ^ theirs) / len(everything) if everything else 0.0


def _relative(a: Tensor, b: Tensor, i: int, j: int) -> float:
    mine, theirs = a.row(i), b.row(j)
    apart = math.sqrt(sum((x - y) ** 2 for x, y in zip(mine, theirs, strict=True)))
    size = math.sqrt(sum(y * y for y in theirs))
    return apart / size if size else (math.inf if apart else 0.0)
