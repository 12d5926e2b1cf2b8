"""The whole reference model with one operation replaced by a patch: what comes out at the logits.

The nano checkpoint by default, another one with --fidelity-checkpoint. The truth, and the truth
with that operation in bf16 (the null arm), run on the same tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import reference.model
import reference.sublayers
from fidelity.microtests.results import Check
from fidelity.tensors.compounding import in_bf16, logit_checks
from suites.patches.checkpoint import Checkpoint, ReadModel

NANO = Path(__file__).resolve().parents[2] / "engine" / "checkpoints" / "nano"
MOST_BYTES = 2 << 30
"""Of a checkpoint that is run as a whole, in float32 on the CPU."""
TOKENS = 400
"""Beyond the selection limit of the nano model: 32 entries of 4 tokens."""
_MODULES = (reference.model, reference.sublayers)


@lru_cache(maxsize=2)
def model_of(folder: Path) -> reference.model.Model:
    """The model in float32, its tensors read as they are needed."""
    return ReadModel(Checkpoint(folder))


def held_whole(folder: Path | None) -> Path:
    """The checkpoint whose whole model is run: this one, or nano where none is or it is too large.

    The figures name the one that was run.
    """
    if folder is None or Checkpoint(folder).stored_bytes > MOST_BYTES:
        return NANO
    return folder


@lru_cache(maxsize=2)
def tokens_of(folder: Path) -> Tensor:
    """Token ids of numbered lines with facts in them; drawn evenly where there is no tokenizer."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        vocabulary = model_of(folder).config.vocab_size
        return torch.randint(vocabulary, (TOKENS,), generator=torch.Generator().manual_seed(0))
    from tokenizers import Tokenizer

    names = ("amber", "cobalt", "sienna", "umber", "violet", "ochre", "teal")
    lines = [
        f"{i}. The {names[i * 5 % 7]} gate of hall {i * 37 % 91} opens with {i * 7919 % 9973}.\n"
        for i in range(1, 60)
    ]
    ids = Tokenizer.from_file(str(path)).encode("".join(lines)).ids
    return torch.tensor(ids[:TOKENS])


@lru_cache(maxsize=4)
def truth_of(folder: Path, tokens: tuple[int, ...]) -> Tensor:
    """Logits [T, V] of the model as it is."""
    return model_of(folder).forward(torch.tensor(tokens))


@lru_cache(maxsize=8)
def null_of(folder: Path, tokens: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
    """Logits [T, V] of the model with these functions of the reference in bf16."""
    with _replaced({name: in_bf16(_original(name)) for name in names}):
        made: Tensor = model_of(folder).forward(torch.tensor(tokens))
    return made


def whole_model_checks(
    replacements: Mapping[str, Callable[..., Any]], folder: Path, tokens: Tensor | None = None
) -> tuple[Check, ...]:
    """KL at the logits of the model with these functions of the reference replaced.

    Args:
        replacements: functions by name.
        folder: the checkpoint.
        tokens: ids of the text; numbered lines where none is given.

    Raises: ValueError: the model calls no function of that name.
    """
    model = model_of(folder)
    tokens = tokens_of(folder) if tokens is None else tokens
    text = tuple(tokens.tolist())
    null = null_of(folder, text, tuple(sorted(replacements)))
    with _replaced(replacements):
        made = model.forward(tokens)
    truth = truth_of(folder, text)
    where = f"{folder.name}, {tokens.numel()} tokens"
    return logit_checks(made, null, truth, name="whole model", where=where)


def _original(name: str) -> Callable[..., Any]:
    for module in _MODULES:
        if hasattr(module, name):
            found: Callable[..., Any] = getattr(module, name)
            return found
    raise ValueError(f"replacements: no function {name!r} in the reference model")


@contextmanager
def _replaced(replacements: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    kept = [(m, n, getattr(m, n)) for n in replacements for m in _MODULES if hasattr(m, n)]
    for module, name, _ in kept:
        setattr(module, name, replacements[name])
    try:
        yield
    finally:
        for module, name, function in kept:
            setattr(module, name, function)
