"""What a twin needs to know of the server that it measures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fidelity.statistics.divergence import rounding_bound

if TYPE_CHECKING:
    from fidelity.endpoint.client import Client
    from fidelity.measure import Measure

CHUNK_KEYS = ("chunk_tokens", "chunked_prefill_size", "max_num_batched_tokens", "n_batch")
POOL_KEYS = ("max_total_tokens", "max_total_num_tokens", "n_ctx_total")
TOPS = 5
"""Alternatives a token: the most that the older API allows."""
PROVEN_TOPS = 2
"""That discovery has seen of a server that gives any."""
ASSUMED_DTYPE = "bfloat16"
"""Of a server that does not tell: what most are served in."""
_TELL_IGNORE_EOS = frozenset({"engine", "vllm", "sglang", "llamacpp"})
_SIZES = (16, 64, 128)
"""Pages and windows of engines in use: boundaries where a server tells none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Facts of one deployment.

    Attributes:
        page: tokens of a KV page; None when the server does not tell.
        chunk: most prompt tokens of one forward pass; None when the server does not tell.
        pool_tokens: that its KV pools hold; None when the server does not tell.
        dtype: that it computes in, as it says, else `ASSUMED_DTYPE`.
        dtype_told: whether it says so.
        graded: it gives logprobs with alternatives; without them only texts are compared.
        by_ids: prompts can be given as token ids, so lengths are exact.
        has_ids: it returns the ids of what it generated.
        ignores_eos: it goes on behind the end token when told so: lengths of answers are exact.
        can_bypass: logprobs of given text can be asked for, and such a request reads no cache.
        limit_tokens: prompt and answer together; None when unknown.
        tells_cached: its usage has been seen to tell cached tokens; where it leaves them out of an
            answer's usage, there were none.
        tops: alternatives a token that it was seen to give.
        answers_at: generated tokens before the first that depends on what the prompt tells.
        thinking: False where the server can be told not to reason and the profile leaves it to
            the server: an answer that begins at once depends on the prompt at once.
        running_gauges: metrics that count the requests being computed.
        workers: clients of the deployment's other processes, by role.
    """

    page: int | None = None
    chunk: int | None = None
    pool_tokens: int | None = None
    dtype: str = ASSUMED_DTYPE
    dtype_told: bool = False
    graded: bool = True
    by_ids: bool = True
    has_ids: bool = True
    ignores_eos: bool = False
    can_bypass: bool = True
    limit_tokens: int | None = None
    tells_cached: bool = True
    tops: int = TOPS
    answers_at: int = 0
    thinking: bool | None = None
    running_gauges: tuple[str, ...] = ()
    workers: Mapping[str, "Client"] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """How far rounding may move one logprob here, nats."""
        return rounding_bound(self.dtype)

    def boundaries(self, low: int, high: int) -> list[int]:
        """Return lengths in tokens at which something of the server ends, within [low, high]."""
        pages = {self.page} if self.page else set(_SIZES)
        found = {multiple for size in pages for multiple in range(2 * size, high + 1, size)}
        found |= set() if self.chunk is None else set(range(self.chunk, high + 1, self.chunk))
        return sorted(n for n in found if low <= n <= high)


def room_of(measure: "Measure") -> Room:
    """Return what is known of the measured deployment; a plan knows nothing and assumes all."""
    deployment = measure.deployment
    capabilities = deployment.capabilities
    info: Mapping[str, Any] = deployment.server_info or {}
    if measure.planning:
        return Room(limit_tokens=capabilities.max_model_len)
    given = measure.settings.dtype
    dtype, told = _computed_in(*((given, True) if given else _dtype(info)))
    has_ids = capabilities["token_ids"].present
    can_bypass = capabilities["prompt_logprobs"].present and capabilities["completions"].present
    client = deployment.client
    switchable = client.profile.thinking is None and client.server.dialect.thinking_keys
    limits = [capabilities.max_model_len]
    if can_bypass:  # a prompt past the cache is a given text, and bounded as one
        limits.append(client.given_text_limit)
    return Room(
        page=capabilities.page_size,
        chunk=_whole(info, CHUNK_KEYS),
        pool_tokens=_whole(info, POOL_KEYS),
        dtype=dtype,
        dtype_told=told,
        graded=capabilities["top_logprobs"].present,
        by_ids=capabilities["completions"].present
        and (has_ids or capabilities["tokenize"].present),
        has_ids=has_ids,
        ignores_eos=capabilities.dialect in _TELL_IGNORE_EOS,
        can_bypass=can_bypass,
        limit_tokens=min((limit for limit in limits if limit is not None), default=None),
        tells_cached=capabilities["cached_tokens"].present,
        thinking=False if switchable else None,
        running_gauges=client.server.dialect.running_gauges,
        workers={name: worker.client for name, worker in deployment.roles.items()},
    )


def _dtype(info: Mapping[str, Any]) -> tuple[str, bool]:
    told = info.get("dtype") or info.get("torch_dtype")
    try:
        rounding_bound(str(told) if told else None)
    except ValueError:  # "auto", or a name of the server's own
        return ASSUMED_DTYPE, False
    return (str(told), True) if told else (ASSUMED_DTYPE, False)


def _computed_in(dtype: str, told: bool) -> tuple[str, bool]:
    """Return what both arms of a twin are computed in.

    Formats coarser than bfloat16 are those of weights or keys: both arms read the very same rounded
    values, and sum them in bfloat16.
    """
    if rounding_bound(dtype) > rounding_bound(ASSUMED_DTYPE):
        return ASSUMED_DTYPE, told
    return dtype, told


def _whole(info: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = info.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
