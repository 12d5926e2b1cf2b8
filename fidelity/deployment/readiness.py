"""When a server is ready: it answers 200 at its readiness path. A person may have to start it."""

import time
from collections.abc import Awaitable, Callable

import anyio

from fidelity.config.deployment_spec import ServerSpec
from fidelity.config.redaction import Redactor
from fidelity.deployment.command import Address
from fidelity.endpoint.transport import Transport
from fidelity.errors import EndpointError, LaunchError

_READY_POLL_S = 0.1


async def wait_for_manual(
    spec: ServerSpec, announce: Callable[[str], None], redactor: Redactor
) -> None:
    """Wait for a server that a person starts, and say so when it is not there yet.

    Raises:
        LaunchError: it was not ready in time.
    """
    root_url = Address.of(spec).root_url
    said = False

    def not_yet(seen: str) -> None:
        nonlocal said
        if not said:
            where = f" on {spec.host}" if spec.host else ""
            announce(
                f"waiting up to {spec.readiness_timeout_s:g} s for {spec.name!r}: start it{where},"
                f" so that {root_url}{spec.readiness_path} answers ({seen})"
            )
            said = True

    await wait_until_ready(spec, root_url, redactor, not_yet=not_yet)


async def wait_until_ready(
    spec: ServerSpec,
    root_url: str,
    redactor: Redactor,
    *,
    check: Callable[[], Awaitable[None]] | None = None,
    not_yet: Callable[[str], None] | None = None,
    last_words: Callable[[], str] | None = None,
) -> None:
    """Ask a server until it is ready.

    Args:
        spec: of the server, with its readiness path and time-out.
        root_url: where it answers.
        redactor: of the run.
        check: called before each look; raises when waiting is of no use.
        not_yet: told what was seen each time that it was not ready.
        last_words: of its log, for the error.

    Raises:
        LaunchError: it was not ready in time.
    """
    deadline = time.monotonic() + spec.readiness_timeout_s
    transport = Transport(root_url, redactor=redactor)
    try:
        while True:
            if check is not None:
                await check()
            seen = await _ask_ready(transport, spec)
            if seen is None:
                return
            if not_yet is not None:
                not_yet(seen)
            if time.monotonic() > deadline:
                words = f"; its last lines: {last_words()}" if last_words else ""
                raise LaunchError(
                    f"{spec.name!r} was not ready within {spec.readiness_timeout_s:g} s ({seen})"
                    f"{words}"
                )
            await anyio.sleep(_READY_POLL_S)
    finally:
        await transport.aclose()


async def _ask_ready(transport: Transport, spec: ServerSpec) -> str | None:
    """Return None when the server is ready, else what it said."""
    url = transport.root_url + spec.readiness_path
    try:
        answer = await transport.fetch("GET", url, timeout_s=2.0)
    except EndpointError as error:
        return str(error)
    return None if answer.status == 200 else f"GET {url} answered {answer.status}"
