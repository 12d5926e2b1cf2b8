"""Continuous batching: which tokens of which sequences are computed next.

A step holds one token of every decoding sequence and, in what is left of `chunk_tokens`, chunks of
prompts in order of arrival. Front ends call `submit`, `abort`, `finish`, `flush_cache` and `gauges`
from any thread; everything else happens in the engine's thread, at step boundaries.
"""

import logging
import random
import threading
from collections import deque
from typing import TYPE_CHECKING

from engine.errors import EngineStopped, InvalidRequest, QueueFull
from engine.intake import make_output, make_sequence
from engine.runner import Slice, StepResult
from engine.sampler import Sampled
from engine.sequence import EngineRequest, FinishReason, Output, Sequence, Status
from engine.statistics import Statistics, read_gauges

if TYPE_CHECKING:
    from engine.core import Engine

log = logging.getLogger(__name__)


class Scheduler:
    """Owns all sequences. One lock guards its lists, the pools and the prefix tree."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        """In order of admission: the last one is the youngest, and is retracted first."""
        self.statistics = Statistics()
        self.last_failure: Exception | None = None
        """What the last batch that could not be computed raised."""
        self._sequences: dict[str, Sequence] = {}
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._seeds = random.Random(engine.config.seed)  # noqa: S311 - sampling, not secrets

    # --- any thread -----------------------------------------------------------------------------

    def submit(self, request: EngineRequest) -> None:
        """Queue a request; its outputs come through `request.on_output`.

        Raises:
            InvalidRequest: an empty prompt, a token id outside the vocabulary, an id in use.
            ContextOverflow: prompt and completion need more tokens than the context holds.
            QueueFull: `max_queued_requests` wait already.
            EngineStopped: the engine's thread has ended.
        """
        if self._thread is not None and not self._thread.is_alive():
            raise EngineStopped("The engine's thread has ended; see the log, and restart it.")
        with self._lock:
            sequence = self.make_sequence(request)
            limit = self.engine.config.max_queued_requests
            if len(self.waiting) >= limit and not self._can_start_at_once():
                self.statistics.rejected += 1
                raise QueueFull(waiting=len(self.waiting), limit=limit)
            self._sequences[request.request_id] = sequence
            self.waiting.append(sequence)
            self.statistics.requests += 1
            self._work.notify()

    def abort(self, request_id: str) -> bool:
        """End a request as soon as no step works on it; False when it is not known.

        The id must be the whole one. The last output has the finish reason "abort".
        """
        return self._request_end(request_id, "abort")

    def finish(self, request_id: str) -> bool:
        """End a request because its text is complete (a stop string); otherwise like `abort`."""
        return self._request_end(request_id, "stop")

    def abort_all(self) -> int:
        """Abort every request that waits or runs; return how many."""
        with self._lock:
            known = list(self._sequences)
        return sum(self.abort(request_id) for request_id in known)

    def flush_cache(self) -> bool:
        """Forget all cached prefixes; False, with nothing changed, while requests wait or run."""
        with self._lock:
            if self.waiting or self.running:
                return False
            self.engine.prefix_tree.reset()
            return True

    def gauges(self) -> dict[str, float]:
        """Return what is in use now, and totals since start."""
        with self._lock:
            return read_gauges(self.engine)

    def start(self) -> None:
        """Start the engine's thread."""
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Abort everything and end the engine's thread."""
        self.abort_all()
        with self._lock:
            self._stopping = True
            self._work.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._thread = None
        self.deliver(self._end_requested())

    # --- the engine's thread --------------------------------------------------------------------

    def step(self) -> bool:
        """Do one round: end, admit, compute, draw, report. False when there was nothing to do."""
        self.deliver(self._end_requested())
        with self._lock:
            self.admit()
            slices = self.plan()
        if not slices:
            return False
        try:
            result = self.engine.runner.run(slices)
            sampled = self._sample(result)
        except Exception as error:
            # One batch that cannot be computed must not end a server that others use.
            log.exception("a batch of %d sequences failed", len(slices))
            self._fail([item.sequence for item in slices], error)
            return True
        with self._lock:
            outputs = self.commit(slices, result, sampled)
        self.deliver(outputs)
        return True

    def admit(self) -> None:
        """Move waiting sequences to running, in order, while slots and pages last."""
        limit = self.engine.config.max_running_requests
        while self.waiting and len(self.running) < limit:
            sequence = self.waiting[0]
            first_time = sequence.cached_tokens is None
            if not self.engine.ownership.admit(sequence, reserve_pages=len(self.running)):
                return
            self.waiting.popleft()
            sequence.status = Status.RUNNING
            self.running.append(sequence)
            if first_time:
                self.statistics.count_admission(
                    prompt_tokens=sequence.prompt_tokens, cached_tokens=sequence.cached_tokens or 0
                )

    def plan(self) -> list[Slice]:
        """Choose the next tokens: decodes first, then prompts in order of admission."""
        slices = [
            Slice(sequence, 1)
            for sequence in list(self.running)
            if sequence.num_uncomputed == 1 and self._make_room(sequence)
        ]
        budget = max(self.engine.config.chunk_tokens - len(slices), 1)
        decodes = len(slices)
        for sequence in self.running:
            if sequence.num_uncomputed > 1 and budget > 0:
                count = min(sequence.num_uncomputed, budget)
                slices.append(Slice(sequence, count))
                budget -= count
        if slices:
            self.statistics.count_step(prefills=len(slices) - decodes, decodes=decodes)
        return slices

    def retract(self, sequence: Sequence) -> None:
        """Take a running sequence's pages away and queue it again, before all others.

        Its tokens stay, so what was sent stays true: it goes on after them.
        """
        self.engine.ownership.release(sequence, None)
        self.running.remove(sequence)
        sequence.status = Status.WAITING
        sequence.retractions += 1
        self.statistics.retractions += 1
        self.waiting.appendleft(sequence)

    def commit(
        self, slices: list[Slice], result: StepResult, sampled: list[Sampled]
    ) -> list[tuple[Sequence, Output]]:
        """Take a step's result: what was computed, what was drawn, what ends."""
        read = [
            sequence
            for sequence, count in slices
            if sequence.num_computed < sequence.prompt_tokens <= sequence.num_computed + count
        ]
        for sequence, count in slices:
            sequence.num_computed += count
        drawn = [
            (sequence, draw)
            for sequence, draw in zip(result.sequences, sampled, strict=True)
            if sequence.end_requested is None
        ]
        outputs = [(sequence, self.append(sequence, draw)) for sequence, draw in drawn]
        for sequence in read:
            # Others may share the prompt from now on; one whose logits were no numbers has ended.
            if sequence.status is Status.RUNNING:
                self.engine.ownership.publish(sequence)
        self.statistics.count_generated(sum(len(o.new_token_ids) for _, o in outputs))
        return outputs

    def append(self, sequence: Sequence, draw: Sampled) -> Output:
        """Add a drawn token to a sequence, end it if that was the last, and say so."""
        first = sequence.completion_tokens == 0
        if sequence.max_tokens == 0:
            return self.end(sequence, "length", first=first)
        if draw.token_id < 0:
            position = len(sequence.token_ids) - 1
            return self.end(
                sequence,
                "error",
                first=first,
                error=f"The logits after position {position} are not finite numbers.",
            )
        sequence.token_ids.append(draw.token_id)
        stopped = draw.token_id in sequence.stop_token_ids
        reason: FinishReason | None = "stop" if stopped else None
        if reason is None and sequence.completion_tokens >= sequence.max_tokens:
            reason = "length"
        news = make_output(sequence, reason, draw=draw, first=first)
        if reason is not None:
            self.end(sequence, reason)
        return news

    def end(
        self, sequence: Sequence, reason: FinishReason, *, first: bool = False, error: str = ""
    ) -> Output:
        """Take a sequence out, whatever its state, and give its pages back."""
        if sequence.status is Status.RUNNING:
            self.engine.ownership.release(sequence, reason)
            self.running.remove(sequence)
        elif sequence.status is Status.WAITING:
            self.waiting.remove(sequence)
        sequence.status = Status.FINISHED
        self._sequences.pop(sequence.request_id, None)
        self.statistics.finished += reason in ("stop", "length")
        self.statistics.aborted += reason == "abort"
        self.statistics.failed += reason == "error"
        if self.engine.dumps is not None:
            self.engine.dumps.finish(sequence)
        return make_output(sequence, reason, first=first, error=error)

    def deliver(self, outputs: list[tuple[Sequence, Output]]) -> None:
        """Call the front end back, outside the lock. A front end that is gone is an abort."""
        for sequence, output in outputs:
            try:
                sequence.request.on_output(output)
            except RuntimeError:
                log.warning("request %r has no listener any more", sequence.request_id)
                self.abort(sequence.request_id)

    def make_sequence(self, request: EngineRequest) -> Sequence:
        """Check a request and turn it into a sequence; see `engine.intake`."""
        if request.request_id in self._sequences:
            raise InvalidRequest(f"The request id {request.request_id!r} is in use.")
        return make_sequence(self.engine, request, own_seed=self._seeds.getrandbits(63))

    def check_integrity(self) -> None:
        """Raise AssertionError when pages, locks or lists contradict each other."""
        with self._lock:
            self.engine.ownership.check_integrity(self.running)
            for sequence in self.waiting:
                if sequence.pages or sequence.num_computed:
                    raise AssertionError(f"{sequence.request_id} waits but holds pages")
            known = {id(s) for s in self._sequences.values()}
            listed = [id(s) for s in (*self.waiting, *self.running)]
            if len(listed) != len(set(listed)) or set(listed) != known:
                raise AssertionError("a sequence is listed twice or not at all")

    # --- inside ---------------------------------------------------------------------------------

    def _can_start_at_once(self) -> bool:
        return not self.waiting and len(self.running) < self.engine.config.max_running_requests

    def _request_end(self, request_id: str, reason: FinishReason) -> bool:
        with self._lock:
            sequence = self._sequences.get(request_id)
            if sequence is None:
                return False
            if sequence.end_requested is None:
                sequence.end_requested = reason
            self._work.notify()
            return True

    def _end_requested(self) -> list[tuple[Sequence, Output]]:
        with self._lock:
            due = [(s, s.end_requested) for s in (*self.running, *self.waiting)]
            return [(s, self.end(s, reason)) for s, reason in due if reason is not None]

    def _make_room(self, sequence: Sequence) -> bool:
        """Find a page for a sequence's next token, retracting the youngest until there is one."""
        if sequence.status is not Status.RUNNING:
            return False
        while not self.engine.ownership.grow(sequence):
            youngest = self.running[-1]
            self.retract(youngest)
            if youngest is sequence:
                return False
        return True

    def _sample(self, result: StepResult) -> list[Sampled]:
        if result.logits is None:
            return []
        return self.engine.sampler.sample(result.logits, result.sequences)

    def _fail(self, sequences: list[Sequence], error: Exception) -> None:
        self.last_failure = error
        what = f"The engine failed: {type(error).__name__}: {error}"[:500]
        with self._lock:
            outputs = [(s, self.end(s, "error", error=what)) for s in sequences]
        self.deliver(outputs)

    def _loop(self) -> None:
        while True:
            with self._lock:
                while not (self._stopping or self.waiting or self.running):
                    self._work.wait()
                if self._stopping:
                    return
            try:
                worked = self.step()
            except Exception as error:
                # Whatever broke outside a batch concerns everybody: nobody may wait for ever.
                log.exception("a step failed outside its batch")
                self._fail([*self.running, *self.waiting], error)
                worked = True
            if not worked:
                self._pause()

    def _pause(self) -> None:
        """Wait for news when nothing that waits can be admitted."""
        with self._lock:
            if not self._stopping and not any(s.end_requested for s in self._sequences.values()):
                self._work.wait(timeout=0.05)
