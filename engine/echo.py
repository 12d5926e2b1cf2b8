"""An engine without a model: it repeats the last user message, token by token.

For load tests of clients, and of everything between a client and a scheduler: it queues, runs up
to `max_running_requests` at once, streams, aborts, and counts tokens, and needs no torch. What it
says has probability 1: all its logprobs are 0. Sampling parameters other than the limits and
stops change nothing.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.errors import ContextOverflow, InvalidRequest, QueueFull
from engine.frontend import attach_frontend
from engine.sequence import EngineRequest, FinishReason, Output, TokenLogprobs

CHECKPOINT = Path(__file__).parent / "checkpoints" / "nano"
MAX_MODEL_LEN = 32768


class NoOps:
    """There are no kernels, so there are no patches."""

    def patch_states(self) -> list[dict[str, Any]]:
        """None."""
        return []

    def default_thinking(self) -> bool:
        """No patch, no thinking."""
        return False


class EchoEngine:
    """The echo model with the front end of the real engine."""

    role = "all"

    def __init__(
        self, config: EngineConfig, *, tokens_per_s: float | None = None, api_key: str | None = None
    ) -> None:
        """`tokens_per_s` is the pace of each request; None: as fast as possible."""
        self.config = config
        self.max_model_len = config.max_model_len or MAX_MODEL_LEN
        self.ops = NoOps()
        self.tokenizer: Any = None
        self.encoder: Any = None
        self.server: Any = None
        self.scheduler = EchoScheduler(self, tokens_per_s=tokens_per_s)
        attach_frontend(self, checkpoint=CHECKPOINT, api_key=api_key)

    def start(self) -> None:
        """Start serving requests."""
        self.scheduler.start()

    def stop(self) -> None:
        """Abort what runs and stop."""
        self.scheduler.stop()


@dataclass(slots=True, kw_only=True, eq=False)
class _Echo:
    """One request at work."""

    request: EngineRequest
    answer: list[int]
    max_tokens: int
    stop_ids: frozenset[int]
    sent: int = 0
    end_requested: FinishReason | None = None


@dataclass(slots=True, kw_only=True)
class _Totals:
    requests: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    ended: dict[str, int] = field(default_factory=dict)


class EchoScheduler:
    """Same interface and same rules of admission as the real scheduler."""

    def __init__(self, engine: EchoEngine, *, tokens_per_s: float | None) -> None:
        self.engine = engine
        self._interval_s = 0.0 if tokens_per_s is None else 1.0 / tokens_per_s
        self._waiting: deque[_Echo] = deque()
        self._running: list[_Echo] = []
        self._known: dict[str, _Echo] = {}
        self._totals = _Totals()
        self._work = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def submit(self, request: EngineRequest) -> None:
        """Queue a request. Raises: InvalidRequest, ContextOverflow, QueueFull."""
        with self._work:
            echo = self._make(request)
            config = self.engine.config
            starts_at_once = not self._waiting and len(self._running) < config.max_running_requests
            if len(self._waiting) >= config.max_queued_requests and not starts_at_once:
                raise QueueFull(waiting=len(self._waiting), limit=config.max_queued_requests)
            self._known[request.request_id] = echo
            self._waiting.append(echo)
            self._totals.requests += 1
            self._admit()
            self._work.notify()

    def abort(self, request_id: str) -> bool:
        """End a request with the finish reason "abort"; False when it is not known."""
        return self._request_end(request_id, "abort")

    def finish(self, request_id: str) -> bool:
        """End a request whose text is complete; False when it is not known."""
        return self._request_end(request_id, "stop")

    def abort_all(self) -> int:
        """Abort every request; how many there were."""
        with self._work:
            known = list(self._known)
        return sum(self.abort(request_id) for request_id in known)

    def flush_cache(self) -> bool:
        """There is no cache; False while requests run, as in the real engine."""
        with self._work:
            return not self._known

    def gauges(self) -> dict[str, float]:
        """Loads now, and totals since start."""
        with self._work:
            used = sum(len(e.request.prompt_token_ids) + e.sent for e in self._running)
            size = self.engine.config.max_total_tokens
            return {
                "num_running_reqs": len(self._running),
                "num_queue_reqs": len(self._waiting),
                "num_used_tokens": used,
                "max_total_num_tokens": size,
                "token_usage": used / size,
                "cache_hit_rate": 0.0,
                "gen_throughput": 0.0,
                "num_requests_total": self._totals.requests,
                "num_aborted_requests_total": self._totals.ended.get("abort", 0),
                "prompt_tokens_total": self._totals.prompt_tokens,
                "cached_tokens_total": 0,
                "generation_tokens_total": self._totals.generation_tokens,
            }

    def start(self) -> None:
        """Start the thread that answers."""
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="echo", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Abort everything and end the thread."""
        self.abort_all()
        with self._work:
            self._stopping = True
            self._work.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._thread = None

    def _request_end(self, request_id: str, reason: FinishReason) -> bool:
        with self._work:
            echo = self._known.get(request_id)
            if echo is None:
                return False
            echo.end_requested = echo.end_requested or reason
            self._work.notify()
            return True

    def _loop(self) -> None:
        while True:
            began_s = time.monotonic()
            with self._work:
                if not self._known:
                    if self._stopping:
                        return
                    self._work.wait()
                outputs = self._step()
            for request, output in outputs:
                request.on_output(output)
            rest_s = self._interval_s - (time.monotonic() - began_s)
            if outputs and rest_s > 0:
                self._pause(rest_s)

    def _pause(self, seconds: float) -> None:
        """Wait until the next tokens are due, or a request is to end."""
        with self._work:
            self._work.wait_for(
                lambda: self._stopping or any(e.end_requested for e in self._known.values()),
                seconds,
            )

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.engine.config.max_running_requests:
            echo = self._waiting.popleft()
            self._running.append(echo)
            self._totals.prompt_tokens += len(echo.request.prompt_token_ids)

    def _step(self) -> list[tuple[EngineRequest, Output]]:
        """One token for each running request, and the ends that were asked for."""
        due = [echo for echo in self._known.values() if echo.end_requested is not None]
        outputs = [(echo.request, self._end(echo, echo.end_requested)) for echo in due]
        self._admit()
        outputs += [(echo.request, self._next(echo)) for echo in list(self._running)]
        return outputs

    def _next(self, echo: _Echo) -> Output:
        if echo.max_tokens == 0:
            return self._end(echo, "length", first=True)
        token_id = echo.answer[echo.sent % len(echo.answer)]
        first = echo.sent == 0
        echo.sent += 1
        self._totals.generation_tokens += 1
        if token_id in echo.stop_ids:
            return self._end(echo, "stop", token_id=token_id, stopped=True, first=first)
        if echo.sent >= echo.max_tokens:
            return self._end(echo, "length", token_id=token_id, first=first)
        return self._output(echo, None, token_id=token_id, first=first)

    def _end(
        self,
        echo: _Echo,
        reason: FinishReason | None,
        *,
        token_id: int | None = None,
        stopped: bool = False,
        first: bool = False,
    ) -> Output:
        del self._known[echo.request.request_id]
        (self._running if echo in self._running else self._waiting).remove(echo)
        self._totals.ended[str(reason)] = self._totals.ended.get(str(reason), 0) + 1
        return self._output(echo, reason, token_id=token_id, stopped=stopped, first=first)

    def _output(
        self,
        echo: _Echo,
        reason: FinishReason | None,
        *,
        token_id: int | None = None,
        stopped: bool = False,
        first: bool = False,
    ) -> Output:
        sampling, prompt = echo.request.sampling, echo.request.prompt_token_ids
        scored = None
        if first and sampling.prompt_logprobs is not None:
            start = max(1, sampling.prompt_logprobs_start)
            top = sampling.prompt_logprobs
            scored = tuple(None if at < start else _sure(i, top) for at, i in enumerate(prompt))
        new = () if token_id is None else (token_id,)
        scores = None
        if sampling.logprobs is not None:
            scores = tuple(_sure(i, sampling.logprobs) for i in new)
        return Output(
            request_id=echo.request.request_id,
            new_token_ids=new,
            logprobs=scores,
            prompt_logprobs=scored,
            finish_reason=reason,
            stop_token_id=token_id if stopped else None,
            prompt_tokens=len(prompt),
            completion_tokens=echo.sent,
        )

    def _make(self, request: EngineRequest) -> _Echo:
        prompt, limit = request.prompt_token_ids, self.engine.max_model_len
        if request.request_id in self._known:
            raise InvalidRequest(f"The request id {request.request_id!r} is in use.")
        if not prompt:
            raise InvalidRequest("The prompt is empty; it needs at least one token.")
        vocab_size = self.engine.tokenizer.vocab_size
        wrong = next((i for i in prompt if not 0 <= i < vocab_size), None)
        if wrong is not None:
            raise InvalidRequest(f"Token id {wrong} is not in the vocabulary of {vocab_size}.")
        wanted = request.sampling.max_tokens
        max_tokens = max(limit - len(prompt), 1) if wanted is None else wanted
        if len(prompt) + max_tokens > limit:
            raise ContextOverflow(
                prompt_tokens=len(prompt), max_tokens=max_tokens, max_model_len=limit
            )
        answer, eos = self._answer(prompt)
        end = () if request.sampling.ignore_eos else (eos,)
        stop_ids = frozenset((*end, *request.sampling.stop_token_ids))
        return _Echo(request=request, answer=answer, max_tokens=max_tokens, stop_ids=stop_ids)

    def _answer(self, prompt: list[int]) -> tuple[list[int], int]:
        """What stands between the last user marker and the assistant's, then the end token."""
        spec, tokenizer = self.engine.encoder.spec, self.engine.tokenizer
        markers = (spec.user, spec.assistant, spec.think_start, spec.think_end, spec.eos)
        user, assistant, think, closed, eos = (tokenizer.token_id(m) for m in markers)
        begin = max((at + 1 for at, i in enumerate(prompt) if i == user), default=0)
        said = prompt[begin:]
        if assistant in said:
            said = said[: said.index(assistant)]
        opening = [closed] if prompt[-1] == think else []
        return [*opening, *said, eos], eos


def _sure(token_id: int, top: int) -> TokenLogprobs:
    return TokenLogprobs(token_id=token_id, logprob=0.0, rank=1, top=((token_id, 0.0),)[:top])
