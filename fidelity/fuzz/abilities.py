"""What a deployment is able and allowed to do, as the game needs to know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fidelity.fuzz.moves import PASSIVE_STRANGERS, Rules
from fidelity.fuzz.playing import Can
from fidelity.statistics.divergence import rounding_bound
from fidelity.words import Traffic

if TYPE_CHECKING:
    from fidelity.config.settings import Settings
    from fidelity.deployment.deployment import Deployment

SALTED = {"vllm": "cache_salt", "sglang": "cache_salt"}
"""Dialects whose requests may have a cache of their own, and the field that names it."""
LINE_TOKENS = 26
CROWD = 4
"""Strangers at once beside one's own request, where load is allowed."""
FLOOD_SHARES = (0.5, 0.9)
"""Of the server's pool: after the greater one, whatever comes evicts."""
FLOOD_TOKENS = 4_000
"""Longest flood: a pool that it does not fill evicts nothing, and a longer one is too dear."""
_POOL_KEYS = ("max_total_num_tokens", "max_total_tokens")


def can_of(deployment: Deployment, settings: Settings) -> Can:
    """Return what the server is able and allowed to do."""
    capabilities = deployment.capabilities
    disruptive = Traffic.DISRUPTIVE in settings.allow

    def has(name: str) -> bool:
        state = capabilities.get(name)
        return state is not None and state.present

    return Can(
        logprobs=has("top_logprobs"),
        flush=disruptive and has("flush"),
        call=disruptive and has("abort"),
        given_text=has("prompt_logprobs"),
        cache_salt=SALTED.get(capabilities.dialect, ""),
        dtype=activations_dtype(settings.dtype or declared_dtype(deployment.server_info)),
        tells_cached=has("cached_tokens"),
    )


def rules_of(deployment: Deployment, settings: Settings, *, most_requests: int) -> Rules:
    """Return which moves a game may have."""
    can = can_of(deployment, settings)
    tools = deployment.capabilities.get("tools")
    return Rules(
        allow=frozenset(settings.allow),
        call=can.call,
        flush=can.flush,
        tools=tools is not None and tools.present,
        flood_lines=flood_lines(pool_tokens(deployment.server_info)),
        strangers=CROWD if Traffic.LOAD in settings.allow else PASSIVE_STRANGERS,
        most_requests=most_requests,
    )


def activations_dtype(declared: str | None) -> str | None:
    """Return what one server's arms may round in; weights of 4 or 8 bits are the same in both."""
    if declared is None or rounding_bound(declared) <= rounding_bound("bfloat16"):
        return declared
    return "bfloat16"


def declared_dtype(server_info: Mapping[str, Any]) -> str | None:
    """Return the dtype that a server says it computes in; None where it tells none we know."""
    named = server_info.get("dtype")
    if not isinstance(named, str):
        return None
    try:
        rounding_bound(named)
    except ValueError:
        return None
    return named


def pool_tokens(server_info: Mapping[str, Any]) -> int | None:
    """Return how many tokens the server's pool holds; None where it does not tell."""
    states = server_info.get("internal_states")
    inner = states[0] if isinstance(states, list) and states else {}
    for place in (inner, server_info):
        for key in _POOL_KEYS:
            value = place.get(key) if isinstance(place, Mapping) else None
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def flood_lines(pool: int | None) -> tuple[int, ...]:
    """Return lengths of floods, in lines; none where the pool is too large to be flooded.

    A pool of unknown size gets one long request, which may evict or not.
    """
    sizes = [FLOOD_TOKENS / 4] if pool is None else [pool * share for share in FLOOD_SHARES]
    return tuple(int(size / LINE_TOKENS) for size in sizes if LINE_TOKENS <= size <= FLOOD_TOKENS)
