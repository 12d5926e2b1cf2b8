"""Binding a port, and serving an engine on it until a signal."""

import asyncio
import ipaddress
import signal
import socket
import sys
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from engine.errors import ConfigError

GRACE_S = 5
KEEP_ALIVE_S = 75  # longer than clients pool connections, so that none dies under a request


def bind(host: str, port: int, *, has_key: bool) -> socket.socket:
    """A bound socket that does not listen yet: refuses a busy port before a model is loaded.

    Raises: ConfigError: the address is not ours, is in use, or is open to others without a key.
    """
    if not has_key and not is_loopback(host):
        raise ConfigError(
            f"--host {host} is reachable by others; name a key with --api-key-env, or use "
            "127.0.0.1."
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {host} is no address of this machine: {error}.") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{host}:{port} cannot be bound: {error.strerror}.") from error
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(engine: Any, listener: socket.socket) -> None:
    """Serve `engine` on a bound socket until SIGINT or SIGTERM; then end all requests and stop."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await engine.server.app(scope, receive, send)

    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    signal.signal(signal.SIGTERM, _exit)
    engine.start()
    try:
        asyncio.run(_Server(config, engine).serve(sockets=[listener]))
    finally:
        engine.stop()


def _exit(_signal: int, _frame: object) -> None:
    """Uvicorn raises the signal once more when it is done; the process then ends in order."""
    raise SystemExit(0)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, engine: Any) -> None:
        super().__init__(config)
        self._engine = engine

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where, once requests can come."""
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            print(f"engine: ready on http://{host}:{port}", file=sys.stderr, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what runs, so that its clients get an end instead of a broken stream."""
        self._engine.scheduler.abort_all()
        await super().shutdown(sockets)
