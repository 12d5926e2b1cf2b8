"""Logprobs as servers spell them: chat, legacy completions, and vLLM's prompt logprobs.

Every reader raises `json_shape.Malformed` on another shape.
"""

from typing import Any

from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.replies import TokenLogprob, TopToken


def chat_entry(raw: Any) -> TokenLogprob:
    """Read one token of /chat/completions' logprobs.content."""
    entry = shape.mapping(raw, "logprobs.content[]")
    tops = [
        shape.mapping(t, "top_logprobs[]")
        for t in shape.sequence(entry.get("top_logprobs"), "top_logprobs")
    ]
    return TokenLogprob(
        token=shape.text(entry.get("token"), "token"),
        logprob=shape.number(entry.get("logprob"), "logprob"),
        token_id=_token_id(entry),
        top=tuple(
            TopToken(
                token=shape.text(top.get("token"), "token"),
                logprob=value,
                token_id=_token_id(top),
            )
            for top in tops
            if (value := shape.number(top.get("logprob"), "logprob")) is not None
        ),
    )


def _token_id(entry: dict[str, Any]) -> int | None:
    for key in ("token_id", "id"):
        if key in entry:
            return shape.whole(entry[key], key)
    token = entry.get("token")
    if isinstance(token, str) and token.startswith("token_id:") and token[9:].isdecimal():
        return int(token[9:])
    return None


def legacy_entries(block: dict[str, Any]) -> list[TokenLogprob]:
    """Read logprobs of /completions: parallel arrays, alternatives as token -> logprob."""
    tokens = shape.sequence(block.get("tokens"), "logprobs.tokens")
    values = shape.sequence(block.get("token_logprobs"), "logprobs.token_logprobs")
    tops = shape.sequence(block.get("top_logprobs"), "logprobs.top_logprobs")
    if len(tokens) != len(values):
        raise shape.Malformed(f"{len(tokens)} tokens but {len(values)} token_logprobs")
    entries: list[TokenLogprob] = []
    for position, (token, value) in enumerate(zip(tokens, values, strict=True)):
        top = shape.mapping(tops[position] if position < len(tops) else None, "top_logprobs[]")
        entries.append(
            TokenLogprob(
                token=shape.text(token, "logprobs.tokens[]"),
                logprob=shape.number(value, "token_logprobs[]"),
                token_id=_token_id({"token": token}),
                top=tuple(
                    TopToken(token=name, logprob=found, token_id=_token_id({"token": name}))
                    for name, raw in top.items()
                    if (found := shape.number(raw, "top_logprobs[]")) is not None
                ),
            )
        )
    return entries


def prompt_entry(raw: Any) -> TokenLogprob | None:
    """Read one position of vLLM's prompt_logprobs: id -> {logprob, rank, decoded_token}.

    The given token is listed first; the others are its alternatives.
    """
    if raw is None:
        return None
    entry = shape.mapping(raw, "prompt_logprobs[]")
    found: list[tuple[int, float | None, int | None, str]] = []
    for identity, value in entry.items():
        if not identity.isdecimal():
            raise shape.Malformed(f"prompt_logprobs key {identity[:40]!r} is not a token id")
        fields = shape.mapping(value, "prompt_logprobs[][]")
        found.append(
            (
                int(identity),
                shape.number(fields.get("logprob"), "prompt logprob"),
                shape.whole(fields.get("rank"), "rank"),
                shape.text(fields.get("decoded_token"), "decoded_token"),
            )
        )
    if not found:
        return None
    given, logprob, rank, token = found[0]
    return TokenLogprob(
        token=token,
        logprob=logprob,
        token_id=given,
        rank=rank,
        top=tuple(
            TopToken(token=name, logprob=value, token_id=identity)
            for identity, value, _, name in found
            if value is not None
        ),
    )
