"""Token ids to text as they come: whole characters only, and never a byte of a stop string.

Two stages, each usable alone. `Detokenizer` turns tokens into text and keeps the bytes of an
unfinished character back. `StopStrings` finds the first stop string, and keeps back the tail
that may still become one. Fed in any portions, both give the same text.
"""

import codecs
from collections.abc import Sequence

from engine.tokenizer import Tokenizer


class Detokenizer:
    """Incremental text of a token stream. Not thread-safe; one per sequence."""

    def __init__(self, tokenizer: Tokenizer, hidden_ids: frozenset[int] = frozenset()) -> None:
        """Tokens in `hidden_ids` (turn markers) give no text."""
        self._tokenizer = tokenizer
        self._hidden_ids = hidden_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_ids: Sequence[int]) -> str:
        """The text that these tokens complete; bytes that are no UTF-8 become U+FFFD."""
        return "".join(
            self._decoder.decode(self._tokenizer.token_bytes(i))
            for i in token_ids
            if i not in self._hidden_ids
        )


class StopStrings:
    """Cuts a text stream before the first stop string. Not thread-safe; one per sequence."""

    def __init__(self, stops: Sequence[str], *, keep_match: bool = False) -> None:
        """With `keep_match` the stop string itself ends the text instead of being left out."""
        self._stops = tuple(stops)
        self._keep_match = keep_match
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The text that can no longer belong to a stop string; "" once one has matched."""
        if self.matched is not None:
            return ""
        text = self._held + text
        # the first to be complete wins, so that portions of any size give the same text
        found = min(
            ((at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0),
            default=None,
        )
        if found is not None:
            _, at, self.matched = found
            self._held = ""
            return text[: at + len(self.matched)] if self._keep_match else text[:at]
        keep = self._possible_start(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def close(self) -> str:
        """The rest at the end of the stream: what was held back and never became a match."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        """Characters at the end of `text` that begin a stop string."""
        return max((partial_suffix(text, stop) for stop in self._stops), default=0)


def partial_suffix(text: str, marker: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `marker`."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[len(text) - length :]):
            return length
    return 0
