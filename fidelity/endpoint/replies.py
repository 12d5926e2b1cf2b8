"""What the client hands back: an answer in one shape, whichever server spoke."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fidelity.records import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TopToken:
    """One alternative at a position."""

    token: str
    logprob: float
    token_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """One token of an answer or of a prompt.

    `logprob` is None where the server gives none (the first token of a prompt); `top` is ordered
    as the server sent it; `token_id` is None where the server tells texts only.
    """

    token: str
    logprob: float | None
    token_id: int | None = None
    rank: int | None = None
    top: tuple[TopToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenized:
    """A tokenizer endpoint's answer; `tokens` is None where the server only counts."""

    count: int
    tokens: tuple[int, ...] | None = None
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answered request.

    Attributes:
        request_id: the full random id that we gave the request.
        path: API path below the base URL.
        status: HTTP status; not 200 only when `allow_status` said so.
        started_at: UTC, ISO 8601.
        text: content, without reasoning.
        finish_reason: as the server said; "" when it did not say (an aborted request).
        prompt_tokens: from usage, like the other counts; None when the server does not tell.
        logprobs: of the generated tokens, when asked for.
        prompt_logprobs: of the given text; entries are None where the server gives none.
        ttft_s: from sending to the first delta that carries anything; None when not streamed.
        aborted: we closed the connection or called abort.
        replica: label from a response header, "" when none tells.
        epoch: of the server when the answer ended; it changes with a restart or a new version.
        headers: response headers that hold no secret.
        chunks: deltas that carried something; a chunk is not a token.
        attempts: 1 plus the number of 429/503 that were waited out.
        raw: the whole JSON body, one-shot requests and error statuses only.
    """

    request_id: str
    path: str
    status: int = 200
    started_at: str = ""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    ttft_s: float | None = None
    e2e_s: float = 0.0
    aborted: bool = False
    replica: str = ""
    epoch: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: int = 0
    attempts: int = 1
    waited_s: float = 0.0
    raw: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawReply:
    """An HTTP answer as it came, for suites about plumbing; the body is bounded."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    request_id: str = ""
