"""The cheap requests by which discovery proves capabilities, one function each.

A capability whose request fails is absent with the reason; only a plain chat must work.
"""

import random
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from fidelity.endpoint.client import Client
from fidelity.endpoint.replies import Reply
from fidelity.errors import CapabilityMissing, EndpointError, Overloaded

# a refusal of a field that is not required is an answer here
_REFUSALS = frozenset({400, 404, 405, 415, 422, 500, 501})
_HELLO = [{"role": "user", "content": "Reply with one short sentence about the sea."}]
_FILLER_LINES = 80
_CACHE_TRIES = 4
"""Behind several replicas the second request may meet another cache than the first."""
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@dataclass(slots=True)
class Notes:
    """What was found so far: name -> (present, detail), and a few numbers."""

    found: dict[str, tuple[bool, str]] = field(default_factory=dict)
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    max_model_len: int | None = None
    hello: Reply | None = None

    def note(self, name: str, *, present: bool, detail: str = "") -> None:
        """Keep one finding."""
        self.found[name] = (present, detail)

    def present(self, name: str, detail: str = "") -> None:
        """Keep that it is there."""
        self.note(name, present=True, detail=detail)

    def absent(self, name: str, detail: str) -> None:
        """Keep that it is not, and why."""
        self.note(name, present=False, detail=detail)


Proof = Callable[[Client, Notes], Awaitable[None]]


async def prove_all(client: Client, notes: Notes, *, look_for_inline: bool) -> None:
    """Run every proof in order.

    Raises:
        EndpointError: the plain chat failed.
        Overloaded: the server would not take a request within the cap on waiting.
    """
    await prove_chat(client, notes)
    if look_for_inline and "</think>" in (notes.hello.text if notes.hello else ""):
        client.server.inline_think = True
    proofs: tuple[tuple[str, Proof], ...] = (
        ("tokenize", prove_tokenizer),
        ("detokenize", prove_detokenizer),
        ("stop", prove_stop),
        ("seed", prove_seed),
        ("prefix_cache", prove_cache),
        ("prompt_logprobs", prove_prompt_logprobs),
        ("token_ids", prove_token_ids),
        ("completions", prove_completions),
        ("tools", prove_tools),
        ("reasoning", prove_reasoning),
    )
    for name, proof in proofs:
        try:
            await proof(client, notes)
        except Overloaded:
            raise
        except (EndpointError, CapabilityMissing) as error:
            notes.absent(name, str(error))


async def prove_chat(client: Client, notes: Notes) -> None:
    """Stream one answer with everything asked for, then with less until the server takes it."""
    reply = await client.chat(_HELLO, max_tokens=24, top_logprobs=2, allow_status=_REFUSALS)
    refused = ""
    if reply.status != 200:
        refused = _said(reply)
        reply = await _chat_with_less(client)
    notes.hello = reply
    notes.present("chat")
    streamed = reply.raw is None
    notes.note("stream", present=streamed, detail="" if streamed else "answered in one piece")
    usage = reply.prompt_tokens is not None
    notes.note("usage", present=usage, detail="" if usage else "no usage in the stream")
    has = bool(reply.logprobs)
    detail = "" if has else refused or "asked for, and not in the answer"
    notes.note("logprobs", present=has, detail=detail)
    tops = has and any(len(entry.top) >= 2 for entry in reply.logprobs or ())
    notes.note("top_logprobs", present=tops, detail="" if tops else detail or "none in the answer")
    generated = (reply.completion_tokens or 0) - 1
    if generated > 1 and reply.ttft_s is not None and reply.e2e_s > reply.ttft_s:
        notes.decode_tokens_per_s = generated / (reply.e2e_s - reply.ttft_s)


async def _chat_with_less(client: Client) -> Reply:
    """Leave out logprobs, then stream_options, then use the newer name of max_tokens."""
    server = client.server
    plain = server.quirks
    variants = (
        plain,
        replace(plain, stream_usage=False),
        replace(plain, max_tokens_field="max_completion_tokens"),
    )
    for quirks in variants:
        server.quirks = quirks
        reply = await client.chat(_HELLO, max_tokens=24, allow_status=_REFUSALS)
        if reply.status == 200:
            return reply
    server.quirks = plain
    return await client.chat(_HELLO, max_tokens=24)  # raises with the server's own words


async def prove_tokenizer(client: Client, notes: Notes) -> None:
    """Count the tokens of the messages that were just sent: usage must say the same."""
    try:
        counted = await client.tokenize(_HELLO)
    except EndpointError as error:
        # known to fail, it is not asked again: lengths are calibrated from usage
        client.server.tokenizer_distrust = f"the tokenizer does not count messages: {error}"
        raise
    notes.max_model_len = counted.max_model_len
    told = notes.hello.prompt_tokens if notes.hello else None
    if told is None:
        notes.present("tokenize", "not checked: the server tells no usage")
        return
    _compare(client, notes, counted.count, told)


def _compare(client: Client, notes: Notes, counted: int, told: int) -> None:
    """Hold the tokenizer endpoint against usage, for the same messages."""
    if counted == told:
        notes.present("tokenize", f"agrees with usage ({told} tokens)")
        return
    path = client.server.dialect.tokenize_path
    client.server.tokenizer_distrust = (
        f"{client.transport.root_url}{path} counts {counted} tokens where usage of the same"
        f" messages says {told}: one of them lies, so lengths are calibrated from usage"
    )
    notes.absent("tokenize", client.server.tokenizer_distrust)


async def prove_detokenizer(client: Client, notes: Notes) -> None:
    """Send a text there and back."""
    text = "The tide of 1842 rose twice."
    tokens = (await client.tokenize(prompt=text)).tokens
    if tokens is None:
        notes.absent("detokenize", "the tokenizer tells no token ids")
        return
    back = await client.detokenize(tokens)
    same = back.strip() == text
    notes.note("detokenize", present=same, detail="" if same else f"{text!r} came back as {back!r}")


async def prove_stop(client: Client, notes: Notes) -> None:
    """Ask for the same answer, one-shot, to stop inside its own text."""
    text = notes.hello.text if notes.hello else ""
    word = text[len(text) // 2 :][:3]
    if len(text) < 6 or not word.strip():
        notes.absent("stop", "unproven: the answer was too short to stop inside it")
        return
    reply = await client.chat(
        _HELLO, max_tokens=24, stop=[word], stream=False, allow_status=_REFUSALS
    )
    if reply.status != 200:
        notes.absent("stop", _said(reply))
        return
    kept = word not in reply.text and reply.finish_reason == "stop"
    detail = "" if kept else f"stop {word!r}: finish_reason {reply.finish_reason!r}, text goes on"
    notes.note("stop", present=kept, detail=detail)


async def prove_seed(client: Client, notes: Notes) -> None:
    """Sample twice with one seed."""
    replies = [
        await client.chat(
            _HELLO, max_tokens=8, temperature=1.0, seed=20_240_607, allow_status=_REFUSALS
        )
        for _ in range(2)
    ]
    if replies[0].status != 200:
        notes.absent("seed", _said(replies[0]))
        return
    first, second = ((reply.text, reply.reasoning) for reply in replies)
    same = first == second
    notes.note("seed", present=same, detail="" if same else "two answers with one seed differ")


async def prove_cache(client: Client, notes: Notes) -> None:
    """Send one fresh long prompt several times; a later one must report cached tokens."""
    messages = [{"role": "user", "content": _filler()}]
    replies: list[Reply] = []
    for _ in range(_CACHE_TRIES):
        replies.append(await client.chat(messages, max_tokens=1))
        if (replies[-1].cached_tokens or 0) > (replies[0].cached_tokens or 0):
            break
    first, last = replies[0], replies[-1]
    if first.prompt_tokens and first.ttft_s:
        notes.prefill_tokens_per_s = first.prompt_tokens / first.ttft_s
    elif first.prompt_tokens:
        notes.prefill_tokens_per_s = first.prompt_tokens / first.e2e_s
    reported = any(reply.cached_tokens is not None for reply in replies)
    detail = "" if reported else "usage does not tell cached tokens"
    notes.note("cached_tokens", present=reported, detail=detail)
    hit = (last.cached_tokens or 0) > (first.cached_tokens or 0)
    seen = f"{last.cached_tokens} of {last.prompt_tokens} tokens at request {len(replies)}"
    missed = f"unproven: no hit in {len(replies)} equal requests" if reported else detail
    notes.note("prefix_cache", present=hit, detail=seen if hit else missed)
    if notes.found.get("tokenize", (False, ""))[0] and first.prompt_tokens is not None:
        counted = await client.tokenize(messages)  # a short prompt may agree by accident
        _compare(client, notes, counted.count, first.prompt_tokens)


def _filler() -> str:
    """Return a text that no server has seen: its cold run must be cold."""
    draw = random.Random(secrets.token_bytes(8))  # noqa: S311 - filler, not a secret
    words = ("amber", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet")
    lines = [
        f"Line {number}: box {draw.randrange(10**6):06d} holds {draw.choice(words)}."
        for number in range(_FILLER_LINES)
    ]
    return "\n".join([*lines, "Reply with the word done."])


async def prove_prompt_logprobs(client: Client, notes: Notes) -> None:
    """Ask for logprobs of the given text: one entry per prompt token."""
    dialect = client.server.dialect
    if dialect.prompt_logprobs_field is None:
        notes.absent("prompt_logprobs", f"the dialect {dialect.name!r} has none")
        return
    reply = await client.chat(_HELLO, max_tokens=1, prompt_logprobs=1, allow_status=_REFUSALS)
    if reply.status != 200 or reply.prompt_logprobs is None:
        refused = _said(reply) if reply.status != 200 else "asked for, and not in the answer"
        notes.absent("prompt_logprobs", refused)
        return
    count = len(reply.prompt_logprobs)
    same = reply.prompt_tokens in (None, count)
    detail = f"{count} entries for {reply.prompt_tokens} prompt tokens"
    notes.note("prompt_logprobs", present=same, detail=detail)


async def prove_token_ids(client: Client, notes: Notes) -> None:
    """Ask for the token ids of prompt and answer."""
    dialect = client.server.dialect
    if dialect.ids_field is None:
        notes.absent("token_ids", f"the dialect {dialect.name!r} has none")
        return
    reply = await client.chat(
        _HELLO, max_tokens=2, return_token_ids=True, stream=False, allow_status=_REFUSALS
    )
    ids = reply.prompt_token_ids
    if reply.status != 200 or ids is None or reply.token_ids is None:
        refused = _said(reply) if reply.status != 200 else "asked for, and not in the answer"
        notes.absent("token_ids", refused)
        return
    same = reply.prompt_tokens in (None, len(ids))
    detail = f"{len(ids)} ids for {reply.prompt_tokens} prompt tokens"
    notes.note("token_ids", present=same, detail=detail)


async def prove_completions(client: Client, notes: Notes) -> None:
    """Complete a text."""
    reply = await client.complete(
        "The capital of France is", max_tokens=2, stream=False, allow_status=_REFUSALS
    )
    has = reply.status == 200
    notes.note("completions", present=has, detail="" if has else _said(reply))


async def prove_tools(client: Client, notes: Notes) -> None:
    """Send a tool: it must be taken, and it must make the prompt longer."""
    replies = [
        await client.chat(_HELLO, tools=tools, max_tokens=1, stream=False, allow_status=_REFUSALS)
        for tools in ([], [_TOOL])
    ]
    if replies[1].status != 200:
        notes.absent("tools", _said(replies[1]))
        return
    without, with_tool = (reply.prompt_tokens for reply in replies)
    if without is None or with_tool is None:
        notes.absent("tools", "unproven: taken, but no usage tells whether it was rendered")
        return
    rendered = with_tool > without
    detail = f"{with_tool - without} prompt tokens for one tool"
    notes.note(
        "tools", present=rendered, detail=detail if rendered else "taken, but never rendered"
    )


async def prove_reasoning(client: Client, notes: Notes) -> None:
    """Ask with reasoning on; it must come back apart from the answer, or inline."""
    reply = notes.hello
    if reply is None or not (reply.reasoning or client.server.inline_think):
        thinking = True if client.server.dialect.thinking_keys else None
        reply = await client.chat(_HELLO, max_tokens=64, thinking=thinking, allow_status=_REFUSALS)
    if reply.status != 200:
        notes.absent("reasoning", _said(reply))
    elif reply.reasoning:
        notes.present("reasoning", "in a field of its own")
    elif "<think>" in reply.text or "</think>" in reply.text or client.server.inline_think:
        client.server.inline_think = True
        notes.present("reasoning", "inline, between <think> marks; split off by the client")
    else:
        notes.absent("reasoning", "no reasoning in the answer")


def _said(reply: Reply) -> str:
    error = (reply.raw or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else error or reply.raw
    return f"refused with {reply.status}: {str(message)[:200]}"
