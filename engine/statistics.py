"""What the scheduler counts, for gauges and metrics."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core import Engine

THROUGHPUT_WINDOW_S = 5.0


@dataclass(slots=True, kw_only=True)
class Statistics:
    """Totals since start, and the decode speed of the last seconds. Guarded by the scheduler."""

    requests: int = 0
    finished: int = 0
    aborted: int = 0
    failed: int = 0
    rejected: int = 0
    retractions: int = 0
    steps: int = 0
    prefill_chunks: int = 0
    mixed_steps: int = 0
    """Steps that held prefill chunks and decode tokens together."""
    largest_batch: int = 0
    """Most sequences in one step."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def count_step(self, *, prefills: int, decodes: int) -> None:
        """Count one forward pass."""
        self.steps += 1
        self.prefill_chunks += prefills
        self.mixed_steps += bool(prefills and decodes)
        self.largest_batch = max(self.largest_batch, prefills + decodes)

    def count_generated(self, tokens: int) -> None:
        """Count tokens drawn in one step."""
        self.generation_tokens += tokens
        self._recent.append((time.monotonic(), tokens))
        self._forget()

    def count_admission(self, *, prompt_tokens: int, cached_tokens: int) -> None:
        """Count a request admitted for the first time."""
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    @property
    def cache_hit_rate(self) -> float:
        """Cached share of all prompt tokens admitted."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def throughput(self) -> float:
        """Generated tokens a second, over the last `THROUGHPUT_WINDOW_S` seconds."""
        self._forget()
        return sum(tokens for _, tokens in self._recent) / THROUGHPUT_WINDOW_S

    def _forget(self) -> None:
        horizon = time.monotonic() - THROUGHPUT_WINDOW_S
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()


def read_gauges(engine: "Engine") -> dict[str, float]:
    """Return what is in use now, and totals since start. The caller holds the scheduler's lock.

    `num_used_tokens` counts pages of running sequences only: a cached prefix that nobody reads is
    free for the taking.
    """
    size, pools, scheduler = engine.config.page_size, engine.pools, engine.scheduler
    used = pools.num_pages - engine.ownership.num_available_pages
    stats = scheduler.statistics
    return {
        "num_running_reqs": len(scheduler.running),
        "num_queue_reqs": len(scheduler.waiting),
        "num_used_tokens": used * size,
        "num_cached_tokens": engine.prefix_tree.num_pages * size,
        "max_total_num_tokens": pools.num_pages * size,
        "token_usage": used / pools.num_pages,
        "cache_hit_rate": stats.cache_hit_rate,
        "gen_throughput": stats.throughput(),
        "num_requests_total": stats.requests,
        "num_finished_requests_total": stats.finished,
        "num_aborted_requests_total": stats.aborted,
        "num_failed_requests_total": stats.failed,
        "num_rejected_requests_total": stats.rejected,
        "num_retractions_total": stats.retractions,
        "num_steps_total": stats.steps,
        "num_prefill_chunks_total": stats.prefill_chunks,
        "num_mixed_steps_total": stats.mixed_steps,
        "largest_batch": stats.largest_batch,
        "prompt_tokens_total": stats.prompt_tokens,
        "cached_tokens_total": stats.cached_tokens,
        "generation_tokens_total": stats.generation_tokens,
    }
