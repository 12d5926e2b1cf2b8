"""What training reads: families in proportion, thinking mode now and then, rows of one length."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from engine.nano.chat import CONTEXT, Conversation
from engine.nano.families import (
    echo,
    lists,
    needle,
    pages,
    pairs,
    passkey,
    ruler,
    sections,
    spelt,
    talk,
    tools,
    turns,
)
from engine.nano.names import Rng
from engine.nano.render import Row, render
from engine.nano.tokens import Encoder
from engine.nano.vocabulary import words

Family = Callable[[Rng, int], Conversation]

SHARES: dict[Family, float] = {
    needle.make: 0.12,
    pairs.make: 0.06,
    ruler.make: 0.06,
    passkey.make: 0.06,
    spelt.make: 0.08,
    sections.make: 0.11,
    turns.make: 0.15,
    pages.make: 0.09,
    tools.make: 0.08,
    lists.make: 0.10,
    talk.make: 0.015,
    echo.make: 0.075,
}
# of the second cycle: the same families, most often sections that are asked about many times
SECOND_SHARES: dict[Family, float] = {
    family: share * 0.8 for family, share in SHARES.items() if family is not sections.make
} | {sections.make: 0.05, sections.make_far: 0.24}
_THINKING = 0.15
PAD_ID = 2
_ATTEMPTS = 50


def sample(rng: Rng, encoder: Encoder, budget: int, shares: dict[Family, float] = SHARES) -> Row:
    """Ids and loss weights of one conversation of at most `budget` tokens.

    Raises:
        ValueError: the family's fixed text never fits the budget.
    """
    for _ in range(_ATTEMPTS):
        chosen = rng.choices(list(shares), weights=list(shares.values()))[0]
        conversation = chosen(rng, budget)
        conversation.thinking = rng.random() < _THINKING
        row = render(conversation, encoder, rng, budget)
        if row is not None:
            return row
    raise ValueError(f"no conversation of {budget} tokens in {_ATTEMPTS} attempts")


def batch(
    rng: Rng, encoder: Encoder, rows: int, length: int, shares: dict[Family, float] = SHARES
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8]]:
    """Ids [rows, length + 1], and the weight of each token as a target [rows, length]."""
    ids = np.full((rows, length + 1), PAD_ID, np.int16)
    weights = np.zeros((rows, length + 1), np.uint8)
    for row in range(rows):
        tokens, loss = sample(rng, encoder, length + 1, shares)
        ids[row, : len(tokens)] = tokens
        weights[row, : len(loss)] = loss
    return ids, weights[:, 1:]


def tokenizer_texts(rng: Rng, documents: int) -> Iterator[str]:
    """Text of conversations with short documents, for training the tokenizer."""
    stand_in = _Letters()
    yield from words("english") * (documents // 100)
    for _ in range(documents):
        family = rng.choices(list(SHARES), weights=list(SHARES.values()))[0]
        conversation = family(rng, 400)
        conversation.thinking = rng.random() < _THINKING
        row = render(conversation, stand_in, rng, 1500)
        if row is not None:
            yield stand_in.decode(row[0])


class _Letters(Encoder):
    """One id a character, while there is no tokenizer yet."""

    def __init__(self) -> None:
        self._cache = {}

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


__all__ = ["CONTEXT", "PAD_ID", "SHARES", "Family", "batch", "sample", "tokenizer_texts"]
