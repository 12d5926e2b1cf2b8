"""Text to token ids and back: a thin contract over the checkpoint's tokenizer.json."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from engine.errors import CheckpointError


def _byte_of_character() -> dict[str, int]:
    """The inverse of byte-level BPE's table that makes every byte a printable character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    table.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return table


_BYTES = _byte_of_character()


class Tokenizer:
    """Token ids of text; never adds special tokens, since the encoder writes them as text.

    Special tokens that stand in the text become those tokens (V4's own behaviour: nothing is
    escaped). Thread-safe: `encode` releases the interpreter lock while it works.
    """

    def __init__(self, directory: Path) -> None:
        """Read `tokenizer.json` of a checkpoint.

        Raises: CheckpointError: the file is missing or is not a byte-level BPE tokenizer.
        """
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist; --model needs a checkpoint folder.")
        try:
            self._fast = FastTokenizer.from_file(str(path))
        except Exception as error:  # the Rust side raises bare Exception
            raise CheckpointError(f"{path} is not a tokenizer: {error}.") from error
        self.vocab_size: int = self._fast.get_vocab_size(with_added_tokens=True)
        added = self._fast.get_added_tokens_decoder()
        self._added: dict[int, str] = {i: token.content for i, token in added.items()}
        self._token_bytes = [self._bytes_of(i) for i in range(self.vocab_size)]

    def _bytes_of(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._fast.id_to_token(token_id) or ""
        if any(character not in _BYTES for character in token):
            return token.encode()
        return bytes(_BYTES[character] for character in token)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without added BOS or EOS."""
        ids: list[int] = self._fast.encode(text, add_special_tokens=False).ids
        return ids

    def token_id(self, token: str) -> int | None:
        """The id of a token given as its exact text, or None where the vocabulary lacks it."""
        found: int | None = self._fast.token_to_id(token)
        return found

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; a character may span several tokens.

        Raises: IndexError: an id outside 0..vocab_size-1.
        """
        if token_id < 0:
            raise IndexError(f"token id {token_id} is negative")
        return self._token_bytes[token_id]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included; undecodable bytes become U+FFFD."""
        return b"".join(self.token_bytes(i) for i in token_ids).decode("utf-8", errors="replace")

    def token_text(self, token_id: int) -> str:
        """One token as text; part of a character shows as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")
