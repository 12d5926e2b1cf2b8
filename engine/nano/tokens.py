"""The tokenizer: trained on the generator's own text, and read through a cache of pieces."""

import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.nano.chat import SPECIALS

TOKENIZER_FILE = "tokenizer.json"

_SPLIT = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")
# the pre-tokenizer's own cuts for ASCII text: contractions, single digits, words, signs, spaces
_PIECES = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d|[0-9]| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s+(?=[0-9])|\s+(?!\S)|\s+"
)
_CACHED_PIECES = 300_000


class Encoder:
    """Text to ids, equal to the tokenizer's own, but faster."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def load(cls, folder: Path) -> "Encoder":
        """The encoder of a checkpoint folder."""
        return cls(Tokenizer.from_file(str(folder / TOKENIZER_FILE)))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens in it become themselves, none are added."""
        out: list[int] = []
        for part in _SPLIT.split(text):
            if part in SPECIALS or not part.isascii():
                out += self._whole(part)
            else:
                for piece in _PIECES.findall(part):
                    out += self._whole(piece)
        return out

    def decode(self, ids: list[int]) -> str:
        """Text of `ids`, special tokens shown."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def _whole(self, piece: str) -> list[int]:
        ids = self._cache.get(piece)
        if ids is None:
            ids = self.tokenizer.encode(piece, add_special_tokens=False).ids
            if len(self._cache) < _CACHED_PIECES:
                self._cache[piece] = ids
        return ids


def byte_tokenizer() -> Tokenizer:
    """One token a byte, after the specials; nothing is trained."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: at for at, piece in enumerate([*SPECIALS, *alphabet])}
    tokenizer = _byte_level(models.BPE(vocab=vocab, merges=[]))
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in SPECIALS])
    return tokenizer


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE with single digits; the specials take the first ids."""
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _byte_level(model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
