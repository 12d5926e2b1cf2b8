"""Random traffic under pressure: pages have one owner, and every answer is the lonely one.

Freed pages are poisoned with NaN, so whatever reads a page that it does not own is seen at once.
"""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.errors import QueueFull
from engine.sequence import EngineRequest, SamplingParams

# Long common prefixes, forks at and around page edges (pages of 16 tokens).
TRUNK = torch.randint(2, 199, (90,), generator=torch.Generator().manual_seed(8)).tolist()
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 70)


class Traffic:
    """One engine with a small pool, one that is always alone, and what was asked so far."""

    def __init__(self, engine, lonely) -> None:
        self.engine = engine
        self.lonely = lonely
        self.known: dict = {}
        self.requests: dict[str, tuple] = {}
        self.outputs: dict[str, list] = {}

    def submit(self, request_id: str, prompt: tuple[int, ...], sampling: SamplingParams) -> None:
        outputs: list = []
        request = EngineRequest(
            request_id=request_id,
            prompt_token_ids=list(prompt),
            sampling=sampling,
            on_output=outputs.append,
        )
        self.engine.scheduler.submit(request)
        self.requests[request_id] = (prompt, sampling)
        self.outputs[request_id] = outputs

    def expected(self, prompt: tuple[int, ...], sampling: SamplingParams) -> list[int]:
        key = (prompt, sampling)
        if key not in self.known:
            (outputs,) = self.lonely.generate([list(prompt)], sampling)
            self.known[key] = [t for o in outputs for t in o.new_token_ids]
        return self.known[key]

    def check(self, request_id: str) -> None:
        prompt, sampling = self.requests[request_id]
        outputs = self.outputs[request_id]
        drawn = [t for o in outputs for t in o.new_token_ids]
        expected = self.expected(prompt, sampling)
        ended = [o.finish_reason for o in outputs if o.finish_reason]
        assert len(ended) == 1
        assert ended[0] != "error", outputs[-1].error
        assert outputs[-1].finish_reason == ended[0]
        assert drawn == expected[: len(drawn)]
        assert outputs[-1].cached_tokens <= len(prompt) - 1
        if ended[0] == "length":
            assert drawn == expected
        if sampling.prompt_logprobs is not None and outputs[0].prompt_logprobs is not None:
            assert len(outputs[0].prompt_logprobs) == len(prompt)


class SchedulerMachine(RuleBasedStateMachine):
    engine = None
    lonely = None

    @initialize()
    def begin(self) -> None:
        self.traffic = Traffic(self.engine, self.lonely)
        self.count = 0
        self.engine.scheduler.flush_cache()

    @rule(
        length=st.sampled_from(LENGTHS),
        fork=st.sampled_from((None, 0, 16, 17, 40)),
        max_tokens=st.integers(0, 40),
        scored=st.booleans(),
        seed=st.sampled_from((None, 1)),
    )
    def submit(self, length, fork, max_tokens, scored, seed) -> None:
        prompt = list(TRUNK[:length])
        if fork is not None and fork < length:
            prompt[fork] = (prompt[fork] + 1) % 190 + 2
        sampling = SamplingParams(
            max_tokens=max_tokens,
            temperature=0.0 if seed is None else 1.0,
            seed=seed,
            ignore_eos=True,
            prompt_logprobs=0 if scored else None,
        )
        full = len(self.engine.scheduler.waiting) >= 5
        self.count += 1
        try:
            self.traffic.submit(f"r{self.count}", tuple(prompt), sampling)
        except QueueFull:
            assert full

    @rule(times=st.integers(1, 6))
    def step(self, times) -> None:
        for _ in range(times):
            self.engine.scheduler.step()
            self.engine.scheduler.check_integrity()

    @rule(which=st.integers(0, 20), how=st.sampled_from(("abort", "finish")))
    def end(self, which, how) -> None:
        if self.traffic.requests:
            names = list(self.traffic.requests)
            getattr(self.engine.scheduler, how)(names[which % len(names)])

    @rule(length=st.sampled_from((33, 48, 70)), steps=st.integers(0, 4), tail=st.integers(0, 1))
    def interrupt_and_ask_again(self, length, steps, tail) -> None:
        prompt = tuple(TRUNK[:length])
        sampling = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
        for again in (False, True):
            if len(self.engine.scheduler.waiting) >= 5:
                return
            self.count += 1
            self.traffic.submit(f"r{self.count}", prompt + (7,) * tail * again, sampling)
            for _ in range(0 if again else steps):
                self.engine.scheduler.step()
            if not again:
                self.engine.scheduler.abort(f"r{self.count}")

    @rule()
    def flush(self) -> None:
        idle = not self.engine.scheduler.waiting and not self.engine.scheduler.running
        assert self.engine.scheduler.flush_cache() == idle

    @invariant()
    def holds_together(self) -> None:
        self.engine.scheduler.check_integrity()
        assert len(self.engine.scheduler.running) <= 4

    def teardown(self) -> None:
        while self.engine.scheduler.step():
            self.engine.scheduler.check_integrity()
        for request_id in self.traffic.requests:
            self.traffic.check(request_id)
        assert self.engine.scheduler.gauges()["num_used_tokens"] == 0


@pytest.fixture(scope="module")
def machine(make_engine, poison):
    engine = make_engine(
        page_size=16,
        max_total_tokens=16 * 12,
        chunk_tokens=24,
        max_running_requests=4,
        max_queued_requests=5,
    )
    poison(engine)
    lonely = make_engine(page_size=16, disable_prefix_cache=True, chunk_tokens=4096)
    return type("Machine", (SchedulerMachine,), {"engine": engine, "lonely": lonely})


def test_random_traffic_keeps_pages_apart_and_answers_right(machine) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None)
    )
