"""One question to the server: what a caller may ask, and the JSON body that asks it."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from fidelity.config.profile import RequestProfile
from fidelity.dialects import Dialect
from fidelity.errors import ConfigError
from fidelity.words import Traffic


class AskOptions(TypedDict, total=False):
    """Keyword arguments of `Client.chat` and `Client.complete`; see `Question` for each."""

    max_tokens: int
    tools: Sequence[Mapping[str, Any]] | None
    stream: bool
    temperature: float | None
    seed: int | None
    stop: Sequence[str] | str | None
    logprobs: bool | None
    top_logprobs: int | None
    prompt_logprobs: int | None
    prompt_logprobs_start: int | None
    return_token_ids: bool
    echo: bool
    thinking: bool | None
    reasoning_effort: str | None
    extra: Mapping[str, Any] | None
    request_id: str | None
    abort_after_tokens: int | None
    abort_after_s: float | None
    abort_by_call: bool
    traffic: Traffic
    timeout_s: float | None
    allow_status: frozenset[int] | set[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request before it is sent.

    Attributes:
        prompt: messages, a text, or token ids.
        max_tokens: of the answer.
        temperature: None takes the profile's, and 0 when the profile has none.
        thinking: None takes the profile's; so does `reasoning_effort`.
        logprobs: of the generated tokens; implied by `top_logprobs`.
        prompt_logprobs: alternatives per position of the given text; never streamed.
        prompt_logprobs_start: first position that is scored, where the server can.
        extra: body fields on top of everything, the caller's own risk.
        abort_after_tokens: stop after that many deltas that carry output; 0 as soon as the
            headers are there. A delta is not a token: it is the least that the server has made.
        abort_after_s: close the connection after that time, whatever has come: the only way into
            a prefill.
        abort_by_call: stop by the server's abort call with our full id, not by closing.
        allow_status: statuses that are an answer and not trouble; they are never waited out.
    """

    prompt: Sequence[Mapping[str, Any]] | str | Sequence[int]
    chat: bool
    max_tokens: int = 256
    tools: Sequence[Mapping[str, Any]] | None = None
    stream: bool = True
    temperature: float | None = None
    seed: int | None = None
    stop: Sequence[str] | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprobs_start: int | None = None
    return_token_ids: bool = False
    echo: bool = False
    thinking: bool | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Any] | None = None
    request_id: str | None = None
    abort_after_tokens: int | None = None
    abort_after_s: float | None = None
    abort_by_call: bool = False
    traffic: Traffic = Traffic.PASSIVE
    timeout_s: float | None = None
    allow_status: frozenset[int] | set[int] = field(default_factory=frozenset)

    @property
    def path(self) -> str:
        """Path under the base URL."""
        return "/chat/completions" if self.chat else "/completions"

    @property
    def scores_prompt(self) -> bool:
        """The server is to score the prompt: by name, or by an echo with logprobs."""
        echoed = self.echo and (bool(self.logprobs) or self.top_logprobs is not None)
        return self.prompt_logprobs is not None or echoed

    @property
    def streamed(self) -> bool:
        """Prompt logprobs come whole; an abort needs a stream."""
        if self.abort_after_tokens is not None or self.abort_after_s is not None:
            return True
        return self.stream and self.prompt_logprobs is None


def new_request_id() -> str:
    """Return a full random id: 128 bits, so that it is the prefix of no other."""
    return f"fid-{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """What discovery learned about a server's taste in fields."""

    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    """False when the server refuses `stream_options`."""


def build(
    question: Question,
    *,
    model: str,
    request_id: str,
    profile: RequestProfile,
    dialect: Dialect,
    quirks: Quirks,
) -> bytes:
    """Return the JSON body of a question.

    The caller's own fields win over the profile's, `extra` over both.

    Raises:
        ConfigError: a field that JSON or UTF-8 cannot hold, or that this dialect does not have.
    """
    body: dict[str, Any] = {"model": model, **profile.sampling, **profile.extra_body}
    body |= _prompt(question, profile)
    body[quirks.max_tokens_field] = question.max_tokens
    body["temperature"] = (
        profile.sampling.get("temperature", 0.0)
        if question.temperature is None
        else question.temperature
    )
    body |= _thinking(question, profile, dialect, body)
    body |= _optional(question)
    body |= _special(question, dialect)
    body["stream"] = question.streamed
    if question.streamed and quirks.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if dialect.request_id_field:
        body[dialect.request_id_field] = request_id
    body.update(question.extra or {})
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the request cannot be written as JSON: {error}") from error


def _prompt(question: Question, profile: RequestProfile) -> dict[str, Any]:
    if not question.chat:
        prompt = question.prompt
        return {"prompt": prompt if isinstance(prompt, str) else list(prompt)}
    messages: list[Mapping[str, Any]] = [m for m in question.prompt if isinstance(m, Mapping)]
    body: dict[str, Any] = {"messages": profile.messages(messages)}
    if tools := profile.tools_for(question.tools):
        body["tools"] = tools
    return body


def _thinking(
    question: Question, profile: RequestProfile, dialect: Dialect, body: Mapping[str, Any]
) -> dict[str, Any]:
    if not question.chat:
        return {}
    thinking = profile.thinking if question.thinking is None else question.thinking
    fields = dialect.thinking(thinking)
    if fields and isinstance(body.get("chat_template_kwargs"), dict):
        merged = {**body["chat_template_kwargs"], **fields["chat_template_kwargs"]}
        fields = {"chat_template_kwargs": merged}
    effort = question.reasoning_effort or profile.reasoning_effort
    return fields | ({"reasoning_effort": effort} if effort else {})


def _optional(question: Question) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if question.seed is not None:
        fields["seed"] = question.seed
    if question.stop is not None:
        fields["stop"] = question.stop if isinstance(question.stop, str) else list(question.stop)
    if question.echo:
        fields["echo"] = True
    if question.logprobs or question.top_logprobs is not None:
        tops = question.top_logprobs or 0
        fields |= {"logprobs": True, "top_logprobs": tops} if question.chat else {"logprobs": tops}
    return fields


def _special(question: Question, dialect: Dialect) -> dict[str, Any]:
    """Return the fields that only some dialects have."""
    fields: dict[str, Any] = {}
    wanted = (
        (dialect.ids_field, question.return_token_ids or None, "token ids"),
        (dialect.prompt_logprobs_field, question.prompt_logprobs, "prompt logprobs"),
    )
    for name, value, what in wanted:
        if value is None:
            continue
        if name is None:
            raise ConfigError(
                f"the dialect {dialect.name!r} has no way to ask for {what}:"
                " check the capability before asking"
            )
        fields[name] = value
    start = question.prompt_logprobs_start
    if start is not None and dialect.prompt_logprobs_start_field:
        fields[dialect.prompt_logprobs_start_field] = start
    return fields
