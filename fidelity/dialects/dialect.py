"""What a server speaks beside the OpenAI API, as data: paths, field names, flags that unlock.

A dialect never sends anything by itself; the client and discovery do, with what it says.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.replies import Tokenized

Post = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Posts a JSON body to a path under the server's root and returns the JSON of a 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a server showed of itself before its dialect is known.

    Attributes:
        owned_by: of the first model in /v1/models.
        server: the Server response header.
        paths: paths of its OpenAPI description; empty when it has none.
        answers: small JSON documents by path: /version, /props, /patches, /server_info.
    """

    owned_by: str = ""
    server: str = ""
    paths: frozenset[str] = frozenset()
    answers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeQuery:
    """What to tokenize: messages (with tools) or a plain text."""

    model: str
    messages: Sequence[Mapping[str, Any]] | None = None
    prompt: str | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The lowest common denominator; others override fields, and methods where they must.

    Attributes:
        name: as in fidelity.toml.
        request_id_field: body field by which a client chooses the request's id.
        abort_path: POST {rid} under the root aborts one request.
        flush_path: POST under the root empties the prefix cache.
        server_info_path: GET, JSON about version, settings and load.
        version_path: GET, JSON with a version.
        patches_path: GET, which patches are live, with call counts.
        metrics_path: GET, Prometheus text.
        tokenize_path: POST under the root.
        detokenize_path: POST under the root.
        queue_gauges: metrics that count waiting requests.
        running_gauges: metrics that count running requests.
        thinking_keys: chat_template_kwargs that switch reasoning.
        ids_field: body field that asks for token ids of prompt and answer.
        prompt_logprobs_field: body field that asks for logprobs of given text.
        prompt_logprobs_start_field: body field that limits them to a span.
        unlock: capability -> how the server's operator switches it on.
    """

    name: str = "openai"
    request_id_field: str | None = None
    abort_path: str | None = None
    flush_path: str | None = None
    server_info_path: str | None = None
    version_path: str | None = None
    patches_path: str | None = None
    metrics_path: str | None = "/metrics"
    tokenize_path: str | None = None
    detokenize_path: str | None = None
    queue_gauges: tuple[str, ...] = ()
    running_gauges: tuple[str, ...] = ()
    thinking_keys: tuple[str, ...] = ()
    ids_field: str | None = None
    prompt_logprobs_field: str | None = None
    prompt_logprobs_start_field: str | None = None
    unlock: Mapping[str, str] = field(default_factory=dict)

    def recognises(self, evidence: Evidence) -> bool:
        """Tell whether the server shows marks of this dialect; the plain one claims nothing."""
        del evidence
        return False

    def thinking(self, thinking: bool | None) -> dict[str, Any]:
        """Return the body fields that switch reasoning on or off."""
        if thinking is None or not self.thinking_keys:
            return {}
        return {"chat_template_kwargs": dict.fromkeys(self.thinking_keys, thinking)}

    async def tokenize(self, query: TokenizeQuery, post: Post) -> Tokenized:
        """Count the tokens of a query the way vLLM's /tokenize does.

        Raises:
            json_shape.Malformed: count and tokens are absent or contradict each other.
        """
        body: dict[str, Any] = {"model": query.model}
        if query.messages is None:
            body |= {"prompt": query.prompt or "", "add_special_tokens": False}
        else:
            body |= {"messages": list(query.messages), "add_generation_prompt": True}
            if query.tools:
                body["tools"] = list(query.tools)
            if query.template_kwargs:
                body["chat_template_kwargs"] = dict(query.template_kwargs)
        return read_tokenized(await post(self.tokenize_path or "/tokenize", body))

    async def detokenize(self, model: str, tokens: Sequence[int], post: Post) -> str:
        """Return the text of token ids.

        Raises:
            json_shape.Malformed: no text in the answer.
        """
        body = {"model": model, "tokens": list(tokens)}
        answer = shape.mapping(await post(self.detokenize_path or "/detokenize", body), "answer")
        for key in ("prompt", "text", "content"):
            if key in answer:
                return shape.text(answer[key], key)
        raise shape.Malformed("the answer has no prompt")


def read_tokenized(answer: Any) -> Tokenized:
    """Read {count, tokens, max_model_len}; any but one of count and tokens may be missing.

    Raises:
        json_shape.Malformed: both are missing, or they contradict each other.
    """
    fields = shape.mapping(answer, "the answer")
    count = shape.whole(fields.get("count"), "count")
    raw = fields.get("tokens")
    tokens = None
    if raw is not None:
        tokens = tuple(
            shape.whole(item["id"] if isinstance(item, dict) and "id" in item else item, "tokens[]")
            or 0
            for item in shape.sequence(raw, "tokens")
        )
    if count is None and tokens is None:
        raise shape.Malformed("the answer has neither count nor tokens")
    if count is not None and tokens is not None and count != len(tokens):
        raise shape.Malformed(f"count is {count}, but there are {len(tokens)} tokens")
    return Tokenized(
        count=count if count is not None else len(tokens or ()),
        tokens=tokens,
        max_model_len=shape.whole(fields.get("max_model_len"), "max_model_len"),
    )
