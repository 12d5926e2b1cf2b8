"""The tokenizer of a run: trained from the generator alone, seeded, once per folder."""

import re
from collections.abc import Iterator
from pathlib import Path

from engine.nano.chat import SPECIALS
from engine.nano.mixture import tokenizer_texts
from engine.nano.names import seeded
from engine.nano.tokens import TOKENIZER_FILE, train_tokenizer

_DOCUMENTS = 6000
_SPECIAL = re.compile("|".join(map(re.escape, SPECIALS)))


def ensure_tokenizer(folder: Path, vocab_size: int, seed: int) -> Path:
    """Train tokenizer.json in `folder` unless it is there; returns its path."""
    path = folder / TOKENIZER_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        train_tokenizer(_texts(seed), vocab_size).save(str(path))
    return path


def _texts(seed: int) -> Iterator[str]:
    for text in tokenizer_texts(seeded(f"{seed}"), _DOCUMENTS):
        yield from (part for part in _SPECIAL.split(text) if part)
