"""The tiny checkpoint: seeded, untrained, every parameter off its neutral value.

For tests of plumbing that need a model but no answers: it loads in a moment and its logits differ
from token to token, so that a lost parameter or a swapped position changes them.
"""

from pathlib import Path

import torch

from engine.nano.config import TINY
from engine.nano.corpus import ensure_tokenizer
from engine.nano.export import export_checkpoint
from engine.nano.parameters import initial_parameters

_SHAKE = 0.2
_LOGIT_SPREAD = 0.3


def write_tiny(folder: Path, seed: int) -> Path:
    """Write weights, config.json and tokenizer.json; returns the path of the weights."""
    values = initial_parameters(TINY, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    for name, value in values.items():
        if not value.is_floating_point():
            continue
        if name == "lm_head.weight":
            values[name] = torch.randn(value.shape, generator=generator) * _LOGIT_SPREAD
        elif value.dim() <= 2 and "proj" not in name and "embed" not in name:
            values[name] = value + torch.randn(value.shape, generator=generator) * _SHAKE
    ensure_tokenizer(folder, TINY.vocab_size, seed)
    return export_checkpoint(folder, TINY, values)
