"""A client for tests: short time-outs, everything allowed unless said otherwise."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fidelity.config.profile import RequestProfile
from fidelity.config.redaction import Redactor
from fidelity.dialects import BY_NAME
from fidelity.endpoint.caps import Caps
from fidelity.endpoint.client import Client
from fidelity.endpoint.pacing import Pacer
from fidelity.endpoint.server_calls import Server
from fidelity.endpoint.timeouts import Timeouts
from fidelity.endpoint.transport import Transport
from fidelity.words import Traffic


@asynccontextmanager
async def client_of(
    base_url: str,
    *,
    model: str = "m",
    dialect: str = "openai",
    key: str | None = None,
    key_env: str | None = None,
    idle_s: float = 0.3,
    max_wait_s: float = 5.0,
    max_requests: int = 10_000,
    max_tokens: int | None = 10_000_000,
    allow: tuple[Traffic, ...] = (Traffic.LOAD, Traffic.DISRUPTIVE),
    concurrency: int = 8,
    load_concurrency: int = 32,
    profile: RequestProfile | None = None,
    shared: bool = False,
    **transport: Any,
) -> AsyncIterator[Client]:
    profile = profile or RequestProfile()
    client = Client(
        Transport(
            base_url,
            profile=profile,
            headers={"Authorization": f"Bearer {key}"} if key else None,
            redactor=Redactor([key] if key else []),
            **transport,
        ),
        Server(model=model, dialect=BY_NAME[dialect], key_env=key_env, shared=shared),
        caps=Caps(max_requests=max_requests, max_tokens=max_tokens, allow=allow),
        pacer=Pacer(
            concurrency=concurrency, load_concurrency=load_concurrency, max_wait_s=max_wait_s
        ),
        timeouts=Timeouts(idle_s, prefill_tokens_per_s=1e6, decode_tokens_per_s=1e3),
        profile=profile,
        replica_headers=("x-replica",),
    )
    try:
        yield client
    finally:
        await client.aclose()
