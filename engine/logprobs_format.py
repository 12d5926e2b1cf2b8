"""Logprobs in the shapes that clients know: OpenAI's chat, OpenAI's completions, vLLM's prompt."""

from collections.abc import Sequence
from typing import Any

from engine.detokenizer import Detokenizer
from engine.sequence import TokenLogprobs
from engine.tokenizer import Tokenizer


def chat_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[TokenLogprobs], *, top: int
) -> list[dict[str, Any]]:
    """`choices[].logprobs.content`: each token with its bytes and `top` alternatives."""

    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        return {
            "token": tokenizer.token_text(token_id),
            "logprob": logprob,
            "bytes": list(tokenizer.token_bytes(token_id)),
        }

    return [
        entry(token.token_id, token.logprob)
        | {"top_logprobs": [entry(i, logprob) for i, logprob in token.top[:top]]}
        for token in tokens
    ]


class CompletionLogprobs:
    """`choices[].logprobs` of the older API, over the chunks of one answer.

    As OpenAI does, a token that is no whole character is named by its bytes, and the chosen token
    is always among its alternatives.
    """

    def __init__(self, tokenizer: Tokenizer, *, top: int) -> None:
        self._tokenizer = tokenizer
        self._top = top
        self._decoded = Detokenizer(tokenizer)
        self._offset = 0

    def add(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None]
    ) -> dict[str, Any]:
        """The object for the next tokens; offsets count characters from the first one added."""
        offsets = []
        for token_id in token_ids:
            offsets.append(self._offset)
            self._offset += len(self._decoded.feed([token_id]))
        return {
            "tokens": [self._name(token_id) for token_id in token_ids],
            "token_logprobs": [None if lp is None else lp.logprob for lp in logprobs],
            "top_logprobs": [None if lp is None else self._alternatives(lp) for lp in logprobs],
            "text_offset": offsets,
        }

    def _alternatives(self, token: TokenLogprobs) -> dict[str, float]:
        pairs = (*token.top[: self._top], (token.token_id, token.logprob))
        entries: dict[str, float] = {}
        for token_id, logprob in pairs:
            entries.setdefault(self._name(token_id), logprob)
        return entries

    def _name(self, token_id: int) -> str:
        raw = self._tokenizer.token_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def prompt_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[TokenLogprobs | None], *, top: int
) -> list[dict[str, Any] | None]:
    """VLLM's `prompt_logprobs`: null for the first token and for those that were not asked for."""
    return [None if token is None else _ranked(tokenizer, token, top) for token in tokens]


def _ranked(tokenizer: Tokenizer, token: TokenLogprobs, top: int) -> dict[str, Any]:
    chosen = (token.token_id, token.logprob, token.rank)
    alternatives = [
        (token_id, logprob, rank)
        for rank, (token_id, logprob) in enumerate(token.top[:top], start=1)
        if token_id != token.token_id
    ]
    return {
        str(token_id): {
            "logprob": logprob,
            "rank": rank,
            "decoded_token": tokenizer.token_text(token_id),
        }
        for token_id, logprob, rank in (chosen, *alternatives)
    }
