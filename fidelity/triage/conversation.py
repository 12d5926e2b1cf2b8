"""The chat that is taken apart: messages, tools and parameters of one request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fidelity.config.redaction import is_secret_name
from fidelity.errors import ConfigError

Message = Mapping[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
RESULTS = ("tool", "function")
"""Roles of what a tool gave back; the second is the older API's."""
SAMPLING = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
    }
)
_NEUTRAL: Mapping[str, tuple[float, ...]] = {
    **dict.fromkeys(SAMPLING, (0,)),
    **dict.fromkeys(("top_p", "repetition_penalty"), (1,)),
    "top_k": (-1, 0),
}
"""With these values a field changes nothing; logs hold the defaults of all."""
_LIMITS = ("max_completion_tokens", "max_tokens")
_OURS = frozenset(
    {
        *("model", "messages", "tools", "stream", "stream_options", "n", "rid", "user"),
        *("logprobs", "top_logprobs", "prompt_logprobs", "return_token_ids", "expect", "reject"),
        *("request_id", "echo", *_LIMITS),
    }
)
"""Fields of a request that are set anew for each replay."""
_OF_CLIENTS = frozenset({"extra_headers", "extra_query"})
"""Arguments of a client library, no fields of a body; a log may hold them, keys included."""
DEFAULT_ANSWER_TOKENS = 256
MOST_LEVELS = 100
"""Of lists and objects in each other; what is nested deeper is no request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One request as it is replayed.

    Attributes:
        messages: that are sent; the last one waits for an answer.
        tools: offered with them.
        params: further body fields, sampling included.
        max_tokens: of the answer.
        stream: it asks for its answer as a stream; the API's default is one piece.
        seen: the answer that was recorded behind the last message, "" when there is none.
        expect: texts that the file itself says must be in the answer.
        reject: texts that must not be.
        withheld: names of fields that are not sent, since they hold keys.
    """

    messages: tuple[Message, ...]
    tools: tuple[Message, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = DEFAULT_ANSWER_TOKENS
    stream: bool = False
    seen: str = ""
    expect: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()

    @property
    def turns(self) -> int:
        """Number of user messages."""
        return sum(message["role"] == "user" for message in self.messages)

    @property
    def names_sampling(self) -> bool:
        """True when it says how its answer was sampled, other than greedily."""
        given = {name: self.params[name] for name in SAMPLING if name in self.params}
        return any(value not in _NEUTRAL[name] for name, value in given.items())

    @property
    def context(self) -> tuple[Message, ...]:
        """Everything before the last user message."""
        last = max(i for i, message in enumerate(self.messages) if message["role"] == "user")
        return self.messages[:last]

    @property
    def question(self) -> str:
        """Text of the last user message."""
        return text_of(self.messages[len(self.context)])

    @property
    def characters(self) -> int:
        """Of all texts, which stand for tokens where nobody counts them."""
        return sum(len(text_of(message)) for message in self.messages)

    def as_request(self) -> dict[str, Any]:
        """Return it as JSON that `fidelity triage` reads again."""
        body: dict[str, Any] = {"messages": [dict(message) for message in self.messages]}
        if self.tools:
            body["tools"] = [dict(tool) for tool in self.tools]
        body |= self.params
        body["max_tokens"] = self.max_tokens
        if self.stream:
            body["stream"] = True
        if self.expect:
            body["expect"] = list(self.expect)
        if self.reject:
            body["reject"] = list(self.reject)
        return body


def text_of(message: Message) -> str:
    """Return the text of a message; of content in parts, that of its text parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "\n".join(part for part in parts if isinstance(part, str))


_ENDS_OF_REASONING = ("</think>", "</thinking>", "</seed:think>", "[/THINK]", "</reasoning>")


def rendered_text_of(message: Message) -> str:
    """Return the text of a message as far as every template renders it.

    Templates drop the reasoning of earlier answers, and what stands before its end mark.
    """
    text = text_of(message)
    if message.get("role") == "assistant":
        for mark in _ENDS_OF_REASONING:
            text = text.rpartition(mark)[2]
    return text.strip()


def conversation_of(body: Mapping[str, Any], where: str) -> Conversation:
    """Return the conversation of a request body.

    Args:
        body: with `messages`, and what else an OpenAI request has.
        where: what to call it in errors.

    Raises:
        ConfigError: there is no chat in it that could be sent.
    """
    if too_deep(body):
        raise ConfigError(f"{where}: {TOO_DEEP}")
    messages, seen = _without_answer(_checked(body.get("messages"), where))
    if not any(message["role"] == "user" for message in messages):
        raise ConfigError(f"{where}: no user message waits for an answer")
    _check_tool_results(messages, where)
    tools = body.get("tools") or ()
    if not isinstance(tools, list | tuple) or not all(isinstance(t, Mapping) for t in tools):
        raise ConfigError(f"{where}: tools is no list of tools")
    withheld: list[str] = []
    params = {k: v for k, v in body.items() if k not in _OURS and v is not None}
    limit = next((body[name] for name in _LIMITS if body.get(name) is not None), None)
    return Conversation(
        messages=messages,
        tools=tuple(tools),
        params=_without_keys(params, withheld),
        max_tokens=_answer_tokens(limit, where),
        stream=body.get("stream") is True,
        seen=seen,
        expect=_texts(body, "expect", where),
        reject=_texts(body, "reject", where),
        withheld=tuple(withheld),
    )


def _answer_tokens(limit: Any, where: str) -> int:
    """Return the limit of an answer; none and those below 1 mean "no limit" to servers."""
    if limit is None:
        return DEFAULT_ANSWER_TOKENS
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise ConfigError(f"{where}: max_tokens is {str(limit)[:40]!r}, no whole number")
    return limit if limit > 0 else DEFAULT_ANSWER_TOKENS


TOO_DEEP = f"nested more than {MOST_LEVELS} levels deep"


def too_deep(value: Any) -> bool:
    """Tell whether JSON is nested deeper than any request is; it is looked at without recursion."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, Mapping | list | tuple)
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
        ]
        if not level:
            return False
    return True


def _without_keys(value: Any, withheld: list[str]) -> Any:
    """Return parameters without the fields that hold keys, whose names go to `withheld`."""
    if isinstance(value, list):
        return [_without_keys(item, withheld) for item in value]
    if not isinstance(value, Mapping):
        return value
    kept = {}
    for name, item in value.items():
        if name in _OF_CLIENTS or (isinstance(item, str) and is_secret_name(str(name))):
            withheld.append(str(name)[:40])
        else:
            kept[name] = _without_keys(item, withheld)
    return kept


def _checked(messages: Any, where: str) -> tuple[Message, ...]:
    if not isinstance(messages, list | tuple):
        raise ConfigError(f"{where}: no `messages` in it: give an OpenAI chat request")
    if not messages:
        raise ConfigError(f"{where}: the list of messages is empty")
    for number, message in enumerate(messages, start=1):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ROLES:
            raise ConfigError(
                f"{where}: message {number} has role {str(role)[:40]!r};"
                f" known are {', '.join(ROLES)}"
            )
        if not isinstance(message.get("content"), str | list | None):
            raise ConfigError(
                f"{where}: message {number} has content that is neither text nor parts"
            )
        calls = message.get("tool_calls")
        if not isinstance(calls, list | tuple | None) or not all(
            isinstance(call, Mapping) for call in calls or ()
        ):
            raise ConfigError(f"{where}: message {number}: tool_calls is no list of calls")
    return tuple(dict(message) for message in messages)


def _without_answer(messages: Sequence[Message]) -> tuple[tuple[Message, ...], str]:
    """Split off answers behind the last question: they are what was seen, and not sent."""
    end = len(messages)
    while end and messages[end - 1]["role"] == "assistant":
        end -= 1
    return tuple(messages[:end]), "\n".join(text_of(message) for message in messages[end:])


def _check_tool_results(messages: Sequence[Message], where: str) -> None:
    called: set[str] = set()
    for number, message in enumerate(messages, start=1):
        called |= {str(call.get("id")) for call in message.get("tool_calls") or ()}
        answers = message.get("tool_call_id") if message["role"] == "tool" else None
        if answers is not None and str(answers) not in called:
            raise ConfigError(
                f"{where}: message {number} answers tool call {str(answers)[:80]!r},"
                " which no message before it makes"
            )


def _texts(body: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = body.get(key) or []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(t, str) and t.strip() for t in texts):
        raise ConfigError(f"{where}: {key} is neither a text nor a list of texts")
    return tuple(texts)
