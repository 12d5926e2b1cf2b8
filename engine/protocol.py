"""Requests of the HTTP API, typed and bounded. An unknown field is refused, never ignored."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from engine.errors import InvalidRequest
from engine.messages import ChatMessage, Tool
from engine.sequence import SamplingParams

MAX_TOP_LOGPROBS = 20
MAX_STOPS = 16

RequestId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\-]{1,128}$")]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Unit = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Alternatives = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
StopText = Annotated[str, Meta(min_length=1, max_length=256)]


class _Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class StreamOptions(_Body, kw_only=True):
    """`include_usage` adds a last event with the token counts."""

    include_usage: bool = False
    include_obfuscation: Any = None


class TemplateOptions(_Body, kw_only=True):
    """What the chat encoder takes."""

    thinking: bool | None = None


class GenerationBody(_Body, kw_only=True):
    """What both generating endpoints share. `None` is each field's OpenAI default."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    rid: RequestId | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Unit | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64)] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    prompt_logprobs: Alternatives | None = None
    prompt_logprobs_start: Count = 0
    return_token_ids: bool | None = None
    # said about a request, not asked of it: they cannot change an answer
    user: Annotated[str, Meta(max_length=4096)] | None = None
    # see unimplemented.py: only their neutral values are accepted
    n: Any = None
    logit_bias: Any = None
    service_tier: Any = None
    repetition_penalty: Any = None
    min_tokens: Any = None
    best_of: Any = None

    def stops(self) -> tuple[str, ...]:
        """Stop strings as a tuple."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage event.

        Raises: InvalidRequest: stream options without a stream.
        """
        if self.stream_options is None:
            return False
        if not self.stream:
            raise InvalidRequest("stream_options needs stream to be true.")
        return self.stream_options.include_usage

    def sampling(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """The engine's form. Raises: InvalidRequest: what the bounds above let through."""
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=0 if self.top_k is None else self.top_k,
            min_p=0.0 if self.min_p is None else self.min_p,
            frequency_penalty=self.frequency_penalty or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            seed=self.seed,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
            prompt_logprobs=self.prompt_logprobs,
            prompt_logprobs_start=self.prompt_logprobs_start,
        )


class ChatBody(GenerationBody, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=100_000)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    tools: Annotated[list[Tool], Meta(max_length=1024)] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Annotated[str, Meta(max_length=32)] | None = None
    chat_template_kwargs: TemplateOptions | None = None
    add_generation_prompt: bool = True
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    tool_choice: Any = None
    response_format: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    store: Any = None
    verbosity: Any = None
    web_search_options: Any = None

    def token_limit(self) -> int | None:
        """The limit on the completion, whichever of its two names says it.

        Raises: InvalidRequest: both names, with different values; or a limit of 0.
        """
        both = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(both) > 1:
            raise InvalidRequest(
                f"max_tokens is {self.max_tokens} and max_completion_tokens is "
                f"{self.max_completion_tokens}; send one of them."
            )
        limit = both.pop() if both else None
        if limit == 0:
            raise InvalidRequest("max_tokens is 0, but must be at least 1.")
        return limit

    def alternatives(self) -> int | None:
        """How many top logprobs a token brings; None for no logprobs.

        Raises: InvalidRequest: top_logprobs without logprobs.
        """
        if not self.logprobs:
            if self.top_logprobs:
                raise InvalidRequest("top_logprobs needs logprobs to be true.")
            return None
        return self.top_logprobs or 0


class CompletionBody(GenerationBody, kw_only=True):
    """POST /v1/completions. `prompt` is text or token ids; one prompt a request.

    V4's tokenizer has no special tokens to add, so `add_special_tokens` is obeyed either way.
    """

    prompt: str | list[Any]
    echo: bool | None = None
    logprobs: Alternatives | None = None
    add_special_tokens: bool = True
    suffix: Any = None

    def prompt_parts(self) -> str | list[int]:
        """The one prompt, unwrapped.

        Raises: InvalidRequest: several prompts, none, or something that is no prompt.
        """
        prompt: object = self.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, list) and all(type(i) is int for i in prompt):
            return prompt
        if isinstance(prompt, list) and all(isinstance(i, str | list) for i in prompt):
            raise InvalidRequest(
                f"prompt holds {len(prompt)} prompts; one a request is implemented."
            )
        raise InvalidRequest("prompt must be a text or a list of token ids.")


class TokenizeBody(_Body, kw_only=True):
    """POST /tokenize: of a text, or of a conversation as the model would read it.

    V4's tokenizer has no special tokens to add, so `add_special_tokens` is obeyed either way.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=100_000)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=1024)] | None = None
    reasoning_effort: Annotated[str, Meta(max_length=32)] | None = None
    chat_template_kwargs: TemplateOptions | None = None
    add_generation_prompt: bool = True
    add_special_tokens: bool = True
    return_token_strs: bool = False


class DetokenizeBody(_Body, kw_only=True):
    """POST /detokenize."""

    tokens: Annotated[list[TokenId], Meta(max_length=1 << 21)]
    model: str | None = None


class AbortBody(_Body, kw_only=True):
    """POST /abort_request: one id, matched whole, or everything."""

    rid: RequestId | None = None
    abort_all: bool = False
