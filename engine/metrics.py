"""Prometheus metrics under SGLang's names, in a registry of their own."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from engine.generation import Generation

PREFIX = "sglang:"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LATENCY_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)
_HELP = {
    "num_running_reqs": "Requests that are being computed.",
    "num_queue_reqs": "Requests that wait.",
    "num_used_tokens": "Token slots of the pools in use by running requests.",
    "max_total_num_tokens": "Token slots of the pools.",
    "token_usage": "Share of the token slots in use.",
    "cache_hit_rate": "Share of prompt tokens that came from the prefix cache.",
    "gen_throughput": "Generated tokens a second, lately.",
}


class _Gauges:
    """Reads the scheduler at each scrape, so that no value is ever stale."""

    def __init__(self, read: Callable[[], dict[str, float]], model_name: str) -> None:
        self._read = read
        self._model_name = model_name

    def collect(self) -> Iterator[Metric]:
        """One family a value; totals are counters, everything else gauges."""
        for name, value in self._read().items():
            text = _HELP.get(name, name.replace("_", " ").capitalize() + ".")
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(PREFIX + name, text, labels=["model_name"])
            family.add_metric([self._model_name], value)
            yield family


class Metrics:
    """Counts finished requests, and shows the scheduler's numbers. Thread-safe."""

    def __init__(self, read_gauges: Callable[[], dict[str, float]], model_name: str) -> None:
        """`read_gauges` is called at each scrape; names ending in `_total` are counters."""
        self._registry = CollectorRegistry()
        self._registry.register(_Gauges(read_gauges, model_name))
        self._model_name = model_name
        self._ttft = self._histogram("time_to_first_token_seconds", "Until the first token.")
        self._e2e = self._histogram("e2e_request_latency_seconds", "Of whole requests.")
        self._itl = self._histogram("inter_token_latency_seconds", "Mean of each request.")

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            PREFIX + name, text, ["model_name"], registry=self._registry, buckets=_LATENCY_S
        )

    def observe(self, generation: Generation) -> None:
        """Take a request that is over."""
        ended, first = generation.ended_s, generation.first_token_s
        if ended is None:
            return
        self._e2e.labels(self._model_name).observe(ended - generation.began_s)
        if first is None:
            return
        self._ttft.labels(self._model_name).observe(first - generation.began_s)
        later = generation.usage.completion_tokens - 1
        if later > 0:
            self._itl.labels(self._model_name).observe((ended - first) / later)

    def text(self) -> bytes:
        """The exposition format that Prometheus scrapes."""
        return generate_latest(self._registry)
