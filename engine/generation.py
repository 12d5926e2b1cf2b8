"""One request between the event loop and the scheduler's thread: tokens in, pieces of text out.

`Generation` submits, turns tokens into text, finds stop strings, counts, and makes sure that a
request which nobody waits for any more leaves the scheduler.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.detokenizer import Detokenizer, StopStrings
from engine.parts import Scheduler
from engine.sequence import EngineRequest, FinishReason, Output, SamplingParams, TokenLogprobs
from engine.tokenizer import Tokenizer


class GenerationFailed(Exception):
    """The engine gave the request up; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How tokens become text."""

    stops: Sequence[str] = ()
    keep_stop: bool = False
    hidden_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one step brought: possibly no text yet, possibly the end."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None


@dataclass(slots=True, kw_only=True)
class Usage:
    """Token counts of a request so far."""

    prompt_tokens: int
    cached_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)

    @property
    def completion_tokens(self) -> int:
        """Generated tokens, the end token included."""
        return len(self.token_ids)


class TokensWithText:
    """Holds tokens and text until both are there: text waits for whole tokens, tokens for text."""

    def __init__(self) -> None:
        self._text = ""
        self._tokens: list[tuple[int, int, TokenLogprobs]] = []

    def take(
        self,
        text: str,
        lengths: Sequence[int],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs],
        *,
        last: bool,
    ) -> tuple[str, tuple[int, ...], tuple[TokenLogprobs, ...]]:
        """Add released text and new tokens; return the tokens whose text is there, and that text.

        `lengths` are the characters that each token completed. With `last` everything is returned.
        """
        self._text += text
        self._tokens += zip(lengths, token_ids, logprobs, strict=False)
        end = count = 0
        for place, (length, _, _) in enumerate(self._tokens, start=1):
            if end + length > len(self._text):
                break
            end, count = end + length, place
        if last:
            end, count = len(self._text), len(self._tokens)
        given, self._tokens = self._tokens[:count], self._tokens[count:]
        said, self._text = self._text[:end], self._text[end:]
        return said, tuple(i for _, i, _ in given), tuple(lp for _, _, lp in given)


class Generation:
    """A request at work. Whoever makes one calls `close` in the end, whatever happens."""

    def __init__(
        self,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        *,
        request_id: str,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
        text: TextOptions,
        on_close: "Callable[[Generation], None]",
    ) -> None:
        """Submit at once. Must run in the event loop.

        `on_close` is called once, when the request is over.

        Raises: QueueFull, ContextOverflow, InvalidRequest: nothing was submitted.
        """
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._outputs: asyncio.Queue[Output] = asyncio.Queue()
        self._detokenizer = Detokenizer(tokenizer, text.hidden_ids)
        self.matched_stop: str | int | None = None
        self._stops = StopStrings(text.stops, keep_match=text.keep_stop)
        # a token with a logprob stands beside its own text: neither comes before the other
        self._together = TokensWithText() if sampling.logprobs is not None else None
        self._tokenizer = tokenizer
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.usage = Usage(prompt_tokens=len(prompt_token_ids))
        self.prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
        self.finish_reason: FinishReason | None = None
        self.text: list[str] = []
        self._lengths: list[int] = []
        self._on_close = on_close
        self._closed = False
        self.began_s = time.perf_counter()
        self.first_token_s: float | None = None
        self.ended_s: float | None = None
        scheduler.submit(
            EngineRequest(
                request_id=request_id,
                prompt_token_ids=prompt_token_ids,
                sampling=sampling,
                on_output=self._receive,
            )
        )

    def prompt_text(self) -> str:
        """The prompt as text."""
        return self._tokenizer.decode(self.prompt_token_ids)

    def close(self) -> None:
        """Abort the request, unless it has ended, and report that it is over. Idempotent."""
        if self.finish_reason is None:
            self.finish_reason = "abort"
            self._scheduler.abort(self.request_id)
        if not self._closed:
            self._closed = True
            self.ended_s = time.perf_counter()
            self._on_close(self)

    def finish(self) -> None:
        """End the request: its answer is complete, whatever would come next."""
        if self.finish_reason is None:
            self.finish_reason = "stop"
            self._scheduler.finish(self.request_id)

    async def next(self) -> Piece:
        """The next piece; the last one has a finish_reason.

        Raises: GenerationFailed: the engine gave up.
        """
        output = await self._outputs.get()
        if output.finish_reason == "error":
            self.finish_reason = "error"
            raise GenerationFailed(output.error or "the engine gave the request up")
        self.usage.cached_tokens = max(self.usage.cached_tokens, output.cached_tokens)
        if output.prompt_logprobs is not None:
            self.prompt_logprobs = output.prompt_logprobs
        return self._piece(output)

    def _receive(self, output: Output) -> None:
        """Called from the scheduler's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._outputs.put_nowait, output)

    def _piece(self, output: Output) -> Piece:
        text, used = self._read(output)
        ended = output.finish_reason
        if self._stops.matched is not None:
            ended = "stop"
            self.matched_stop = self._stops.matched
            if output.finish_reason is None:
                self._scheduler.finish(self.request_id)
        elif ended is not None:
            text += self._stops.close()
            self.matched_stop = output.stop_token_id
        self.finish_reason = ended
        self.text.append(text)
        token_ids = output.new_token_ids[:used]
        if token_ids and self.first_token_s is None:
            self.first_token_s = time.perf_counter()
        self.usage.token_ids += token_ids
        logprobs = (output.logprobs or ())[:used]
        if self._together is not None:
            text, token_ids, logprobs = self._together.take(
                text, self._lengths, token_ids, logprobs, last=ended is not None
            )
        return Piece(text=text, token_ids=token_ids, logprobs=logprobs, finish_reason=ended)

    def _read(self, output: Output) -> tuple[str, int]:
        """Text of the new tokens, and how many of them count: none after a stop string."""
        texts: list[str] = []
        self._lengths = [0] * len(output.new_token_ids)
        for at, token_id in enumerate(output.new_token_ids):
            is_end = at == len(output.new_token_ids) - 1 and token_id == output.stop_token_id
            if not is_end:
                read = self._detokenizer.feed([token_id])
                self._lengths[at] = len(read)
                texts.append(self._stops.feed(read))
            if self._stops.matched is not None:
                return "".join(texts), at + 1
        return "".join(texts), len(output.new_token_ids)


def usage_body(usage: Usage, *, reasoning_tokens: int | None) -> dict[str, Any]:
    """Usage in OpenAI's shape."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return body
