"""Writes a GGUF model as a Hugging Face folder in bf16; runs in the environment of transformers.

    python gguf_to_hf.py FOLDER FILE.gguf TARGET

The weights are copied into a plain model, since a dequantised one refuses to be saved. The target
appears only when it is whole.
"""

import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(folder: Path, name: str, target: Path) -> None:
    """Convert, and move the result into place."""
    draft = target.with_name(f"{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    given = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    plain = type(given)(given.config)
    plain.load_state_dict(given.state_dict())
    if hasattr(plain.config, "quantization_config"):
        del plain.config.quantization_config
    plain.to(torch.bfloat16).save_pretrained(draft)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(draft)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
