"""The tiny checkpoint: seeded, untrained, every parameter off its neutral value.

For tests of plumbing that need a model but no answers: it loads in a moment, a step costs little,
and its logits differ from token to token, so that a lost parameter or a swapped position changes
them. Its shape is spelt here, not taken from what is trained: the committed folder stays as it is
when the trained shape changes. The same bits come out on every machine: uniform draws are exact,
where normal ones depend on the processor's vector instructions, and no tokenizer is trained.
"""

import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from engine.nano.config import TINY, NanoConfig
from engine.nano.export import export_checkpoint
from engine.nano.parameters import initial_parameters
from engine.nano.tokens import TOKENIZER_FILE, byte_tokenizer

FOLDER = Path(__file__).parents[1] / "checkpoints" / "tiny"
SEED = 21
SHAPE = replace(
    TINY,
    layers="SHCSC",
    vocab_size=266,
    window=32,
    hca_rate=32,
    index_heads=16,
    index_topk=8,
    rms_eps=1e-6,
    hc_eps=1e-4,
    yarn_original=2048,
    max_position=32_768,
)
_SHAKE = 0.2
_LOGIT_SPREAD = 0.3
# a grid, so that the last bit of a vectorised `linspace` does not reach the file
_GRID = 2.0**-20

_CARD = """# The tiny checkpoint

An untrained DeepSeek-V4 of {parameters:,} parameters ({size_mb:.1f} MB) for this project's
unit tests that need a model but no answers. What it says is noise, and differs with every token
before it. For anything that must recall, use `../nano`.

Made by

    python -m engine.nano tiny

from seed {seed}, on a CPU, in seconds. The command writes the same bytes again on any machine;
`tests/engine/nano/test_tiny.py` compares them with the committed ones.

| | |
|---|---|
| layers | {layers}: S sliding, window {window}; H one entry for {hca} tokens; C one for {csa} |
| width | {hidden}, {heads} heads of {head_dim}, of which {rope_dim} rotary; {streams} streams |
| indexer | {index_heads} heads of {index_dim}; {topk} entries are read |
| experts | {experts} of {expert_dim}, {chosen} a token, 1 shared; first layer by token hash |
| epsilons | RMS {rms_eps:g}, mixing {hc_eps:g} |
| tokens | bytes: ten special ones and 256 |

Norms, sinks, position and router biases and mixing parameters are shaken off their neutral values.

Licence: Apache-2.0, as the repository. It contains no text, weights or tokenizer of others.
"""


def write_tiny(folder: Path = FOLDER, seed: int = SEED) -> Path:
    """Write weights, config.json, encoding.json, tokenizer.json and card; returns the weights."""
    values = initial_parameters(SHAPE, seed, _uniform)
    generator = torch.Generator().manual_seed(seed + 1)
    for name, value in values.items():
        if not value.is_floating_point():
            continue
        if name == "lm_head.weight":
            values[name] = _uniform(value.shape, generator) * _LOGIT_SPREAD
        elif value.dim() <= 2 and "proj" not in name and "embed" not in name:
            shaken = value + _uniform(value.shape, generator) * _SHAKE
            values[name] = (shaken / _GRID).round() * _GRID
    path = export_checkpoint(folder, SHAPE, values)
    byte_tokenizer().save(str(folder / TOKENIZER_FILE))
    _write_card(folder, SHAPE, values, seed)
    return path


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=generator) * 2 - 1) * math.sqrt(3)


def _write_card(folder: Path, shape: NanoConfig, values: dict[str, Tensor], seed: int) -> None:
    text = _CARD.format(
        parameters=sum(v.numel() for v in values.values() if v.is_floating_point()),
        size_mb=(folder / "model.safetensors").stat().st_size / 1e6,
        seed=seed,
        layers=shape.layers,
        window=shape.window,
        hca=shape.hca_rate,
        csa=shape.csa_rate,
        hidden=shape.hidden,
        heads=shape.heads,
        head_dim=shape.head_dim,
        rope_dim=shape.rope_dim,
        index_heads=shape.index_heads,
        index_dim=shape.index_dim,
        topk=shape.index_topk,
        experts=shape.experts,
        expert_dim=shape.expert_dim,
        chosen=shape.experts_per_token,
        streams=shape.streams,
        rms_eps=shape.rms_eps,
        hc_eps=shape.hc_eps,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
