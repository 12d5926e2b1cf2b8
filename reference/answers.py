"""Answers in the shapes that clients know: OpenAI's, and vLLM's for logprobs of given text."""

from collections.abc import Sequence
from typing import Any

from reference.greedy import Scored
from reference.tokenizer import Tokenizer


def completion_logprobs(tokenizer: Tokenizer, tokens: Sequence[Scored]) -> dict[str, Any]:
    """`choices[].logprobs` of /v1/completions."""
    names = [_name(tokenizer, token.token_id) for token in tokens]
    offsets, so_far = [], 0
    for place in range(len(tokens)):
        offsets.append(so_far)
        so_far = len(tokenizer.decode([token.token_id for token in tokens[: place + 1]]))
    alternatives = [
        {_name(tokenizer, i): lp for i, lp in (*token.top, (token.token_id, token.logprob))}
        for token in tokens
    ]
    return {
        "tokens": names,
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": alternatives,
        "text_offset": offsets,
    }


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[Scored]) -> dict[str, Any]:
    """`choices[].logprobs` of /v1/chat/completions."""

    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        raw = tokenizer.token_bytes(token_id)
        text = raw.decode("utf-8", errors="replace")
        return {"token": text, "logprob": logprob, "bytes": list(raw)}

    content = [
        entry(token.token_id, token.logprob)
        | {"top_logprobs": [entry(i, logprob) for i, logprob in token.top]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def prompt_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[Scored | None]
) -> list[dict[str, Any] | None]:
    """VLLM's `prompt_logprobs`: by token id, the given token first; null where not asked for."""
    return [None if token is None else _ranked(tokenizer, token) for token in tokens]


def _ranked(tokenizer: Tokenizer, token: Scored) -> dict[str, Any]:
    given = (token.token_id, token.logprob, token.rank)
    others = [(i, lp, rank) for rank, (i, lp) in enumerate(token.top, start=1) if i != given[0]]
    return {
        str(i): {"logprob": lp, "rank": rank, "decoded_token": tokenizer.decode([i])}
        for i, lp, rank in (given, *others)
    }


def _name(tokenizer: Tokenizer, token_id: int) -> str:
    """A token by its text, or by its bytes where it is no whole character, as OpenAI has it."""
    raw = tokenizer.token_bytes(token_id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Nothing is ever cached here."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
