"""Byte-level BPE from a tokenizer.json, by the standard library.

Text is cut at the added tokens, then into digits, then into words as GPT-2 cuts them, and each
word's bytes are merged by rank. Another kind of tokenizer is refused.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
_NO_SPACE = "\x1c\x1d\x1e\x1f"  # Python's isspace() has them, Unicode's White_Space has not


def _byte_characters() -> list[str]:
    """A printable character for each byte: its own, or the next one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


class Tokenizer:
    """Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Read tokenizer.json.

        Raises: ValueError: it is missing, or no byte-level BPE as described above.
        """
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            _refuse_others(raw)
            vocabulary: dict[str, int] = raw["model"]["vocab"]
            merges = [tuple(m.split() if isinstance(m, str) else m) for m in raw["model"]["merges"]]
            added = {token["content"]: token["id"] for token in raw["added_tokens"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no byte-level BPE tokenizer: {error}") from error
        self._vocabulary, self._added = vocabulary, added
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._characters = _byte_characters()
        by_length = sorted(added, key=len, reverse=True)
        self._marks = re.compile("(" + "|".join(map(re.escape, by_length)) + ")") if added else None
        self._bytes = self._token_bytes()

    def _token_bytes(self) -> dict[int, bytes]:
        byte_of = {character: byte for byte, character in enumerate(self._characters)}
        plain = {
            token_id: bytes(byte_of[character] for character in token)
            for token, token_id in self._vocabulary.items()
            if token not in self._added
        }
        return plain | {token_id: token.encode() for token, token_id in self._added.items()}

    def encode(self, text: str) -> list[int]:
        """Token ids; added tokens that stand in the text become those tokens."""
        ids: list[int] = []
        for part in self._marks.split(text) if self._marks else [text]:
            if part in self._added:
                ids.append(self._added[part])
                continue
            for word in _words(part):
                ids += self._merged(word)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """What a token stands for; ValueError for an id outside the vocabulary."""
        if token_id not in self._bytes:
            raise ValueError(f"token id {token_id} is not in the vocabulary")
        return self._bytes[token_id]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(i) for i in token_ids).decode("utf-8", errors="replace")

    def _merged(self, word: str) -> list[int]:
        """Merge the pair of the lowest rank, the leftmost first, until none is left."""
        pieces = [self._characters[byte] for byte in word.encode()]
        while len(pieces) > 1:
            pairs = list(pairwise(pieces))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            at = pairs.index(best)
            pieces[at : at + 2] = ["".join(best)]
        return [self._vocabulary[piece] for piece in pieces]


def _refuse_others(raw: dict[str, Any]) -> None:
    steps = raw["pre_tokenizer"].get("pretokenizers", [])
    seen = [(step["type"], step.get("individual_digits", step.get("use_regex"))) for step in steps]
    if raw["model"]["type"] != "BPE" or seen != [("Digits", True), ("ByteLevel", True)]:
        raise ValueError(f"model {raw['model']['type']} with pre-tokenizers {seen}")
    if raw.get("normalizer") or steps[1].get("add_prefix_space"):
        raise ValueError("it changes the text before it cuts it")


def _kind(character: str) -> str:
    """Of a character: L for letters, N for numbers, S for white space, O for others."""
    if character.isspace() and character not in _NO_SPACE:
        return "S"
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "O"


def _words(text: str) -> Iterator[str]:
    """Cut out each number character, then the words between."""
    start = 0
    for at, character in enumerate(text):
        if _kind(character) == "N":
            yield from _gpt2_words(text[start:at])
            yield character
            start = at + 1
    yield from _gpt2_words(text[start:])


def _gpt2_words(text: str) -> Iterator[str]:
    """A contraction, or a run of one kind with at most one space before, or white space.

    White space before a word leaves its last character to that word (if it is a space).
    """
    at = 0
    while at < len(text):
        end = at + _length(text, at)
        yield text[at:end]
        at = end


def _length(text: str, at: int) -> int:
    for contraction in _CONTRACTIONS:
        if text.startswith(contraction, at):
            return len(contraction)
    first = at + (text[at] == " " and at + 1 < len(text) and _kind(text[at + 1]) != "S")
    kind, end = _kind(text[first]), first
    while end < len(text) and _kind(text[end]) == kind:
        end += 1
    if kind == "S" and end < len(text) and end - at > 1:
        end -= 1
    return end - at
