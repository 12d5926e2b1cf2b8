"""Writes a checkpoint folder that `transformers` and the engine load, and reads its tensors."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.nano.config import NanoConfig
from engine.nano.parameters import kept_in_fp32

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
ENCODING_FILE = "encoding.json"


def export_checkpoint(
    folder: Path, config: NanoConfig, values: dict[str, Tensor], *, exact: bool = False
) -> Path:
    """Write model.safetensors, config.json and encoding.json; returns the path of the first.

    exact: keep every float in fp32 (for comparisons); else matrices are rounded to bf16.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = {}
    for name, value in values.items():
        kept = value.detach().cpu()
        if kept.is_floating_point() and not exact and not kept_in_fp32(name):
            kept = kept.to(torch.bfloat16)
        stored[name] = kept.contiguous()
    path = folder / WEIGHTS_FILE
    save_file(stored, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors writes for the owner alone
    text = json.dumps(config.to_json(), indent=2, sort_keys=True)
    (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
    # the chat layout that `chat.py` writes, in the form that the engine reads
    shutil.copyfile(Path(__file__).with_name(ENCODING_FILE), folder / ENCODING_FILE)
    return path


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint folder, floats widened to fp32."""
    stored: dict[str, Tensor] = load_file(folder / WEIGHTS_FILE)
    return {k: v.float() if v.is_floating_point() else v for k, v in stored.items()}
