"""The state of an unfinished run, in parts of at most 16 MiB: legs can be hours apart."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

PART_BYTES = 15 * 2**20
_STATE_FILE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """How far a run is. `seconds` were spent training, over all legs."""

    step: int
    seconds: float
    phase: int
    tokens: int
    seed: int
    preset: str
    legs: int = 0


def save_state(folder: Path, state: RunState, tensors: dict[str, Tensor]) -> None:
    """Write the tensors in parts, then state.json, which makes them valid."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("part-*.safetensors"):
        old.unlink()
    for number, part in enumerate(_parts(tensors)):
        save_file(part, folder / f"part-{number}.safetensors")
    text = json.dumps(asdict(state), indent=2)
    (folder / _STATE_FILE).write_text(text + "\n", encoding="utf-8")


def load_state(folder: Path) -> tuple[RunState, dict[str, Tensor]] | None:
    """What `save_state` wrote, or None when there is nothing to continue."""
    path = folder / _STATE_FILE
    if not path.exists():
        return None
    tensors: dict[str, Tensor] = {}
    for part in sorted(folder.glob("part-*.safetensors")):
        tensors |= load_file(part)
    return RunState(**json.loads(path.read_text(encoding="utf-8"))), tensors


def _parts(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    parts: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if used + size > PART_BYTES and parts[-1]:
            parts.append({})
            used = 0
        parts[-1][name] = tensor.detach().cpu().contiguous()
        used += size
    return parts


def without_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under a prefix, by their names below it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


__all__ = ["PART_BYTES", "RunState", "load_state", "save_state", "without_prefix"]
