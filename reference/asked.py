"""A request's JSON body: every field is read and checked, or refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reference.arguments import refuse

MOST_ALTERNATIVES = 50
DEFAULT_COMPLETION_TOKENS, DEFAULT_CHAT_TOKENS = 16, 256
# Neutral with greedy decoding of one answer, or said about the request and not asked of it.
IGNORED = frozenset({"model", "seed", "top_p", "top_k", "min_p", "user", "add_special_tokens"})
NEUTRAL: dict[str, Any] = {
    "n": 1,
    "best_of": 1,
    "echo": False,
    "suffix": None,
    "presence_penalty": 0,
}
NEUTRAL |= {"frequency_penalty": 0, "logit_bias": None, "tool_choice": "auto"}
COMMON = frozenset({"max_tokens", "temperature", "stream", "stream_options", "stop", "ignore_eos"})
COMMON |= {"prompt_logprobs", "prompt_logprobs_start", "return_token_ids", "rid", "logprobs"}
COMPLETION = COMMON | {"prompt"}
CONVERSATION = frozenset({"messages", "tools", "chat_template_kwargs", "reasoning_effort"})
CONVERSATION |= {"add_generation_prompt"}
CHAT = COMMON | CONVERSATION | {"max_completion_tokens", "top_logprobs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What both generating endpoints are asked; None where the request does not say so."""

    max_tokens: int
    logprobs: int | None
    prompt_logprobs: int | None
    prompt_logprobs_start: int
    stops: tuple[str, ...]
    ignore_eos: bool
    return_token_ids: bool
    stream: bool
    include_usage: bool
    request_id: str | None


def take(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """A field of that type; ValueError for another. null is the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        refuse(name, f"a {type(value).__name__}", f"a {kind.__name__}")
    return value


def whole(body: Mapping[str, Any], name: str, default: Any, *, least: int, most: int) -> Any:
    """A whole number within bounds."""
    value = take(body, name, int, default)
    if value is not None and not least <= value <= most:
        refuse(name, value, f"{least} .. {most}")
    return value


def check_fields(body: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuse fields that would change the answer and are not implemented here."""
    for name, value in body.items():
        if name in NEUTRAL and value not in (None, NEUTRAL[name]):
            refuse(name, repr(value)[:80], repr(NEUTRAL[name]))
        if name not in known | IGNORED | set(NEUTRAL):
            refuse("body", f"an unknown field {name[:80]!r}", ", ".join(sorted(known | IGNORED)))


def read_asked(body: Mapping[str, Any], *, chat: bool) -> Asked:
    """Read what both endpoints share.

    Raises: ValueError: names the field, what came, and what is accepted.
    """
    check_fields(body, CHAT if chat else COMPLETION)
    temperature = body.get("temperature")
    if temperature not in (None, 0):
        refuse("temperature", temperature, "0: this server decodes greedily only")
    top_p = body.get("top_p")
    if top_p is not None and (not isinstance(top_p, int | float) or not 0 < top_p <= 1):
        refuse("top_p", repr(top_p)[:80], "above 0, at most 1")
    whole(body, "seed", None, least=-(1 << 63), most=(1 << 63) - 1)
    options = take(body, "stream_options", dict, {})
    stops = body.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        refuse("stop", repr(stops)[:80], "a text, or a list of texts")
    default = DEFAULT_CHAT_TOKENS if chat else DEFAULT_COMPLETION_TOKENS
    default = body.get("max_completion_tokens") or default if chat else default
    top = whole(body, "top_logprobs" if chat else "logprobs", None, least=0, most=MOST_ALTERNATIVES)
    if chat:
        top = (top or 0) if take(body, "logprobs", bool, default=False) else None
    return Asked(
        max_tokens=whole(body, "max_tokens", default, least=1, most=1 << 20),
        logprobs=top,
        prompt_logprobs=whole(body, "prompt_logprobs", None, least=0, most=MOST_ALTERNATIVES),
        prompt_logprobs_start=whole(body, "prompt_logprobs_start", 0, least=0, most=1 << 30),
        stops=tuple(stops),
        ignore_eos=take(body, "ignore_eos", bool, default=False),
        return_token_ids=take(body, "return_token_ids", bool, default=False),
        stream=take(body, "stream", bool, default=False),
        include_usage=take(options, "include_usage", bool, default=False),
        request_id=take(body, "rid", str, None),
    )
