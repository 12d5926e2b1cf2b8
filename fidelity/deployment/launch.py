"""Starts a deployment's command and ends it again, with everything that it started.

No shell, a process group of its own under a supervisor that ends it when the harness is gone, a
free port, a bounded log.
"""

import atexit
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import anyio

from fidelity.config.deployment_spec import ServerSpec
from fidelity.config.redaction import Redactor
from fidelity.deployment.server_log import ServerLog
from fidelity.endpoint.transport import Transport
from fidelity.errors import EndpointError, LaunchError

_HOST = "127.0.0.1"
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PLACEHOLDER = re.compile(r"\{([a-z0-9_.-]+)\}")
_READY_POLL_S = 0.1
_ATTEMPTS = 3
"""A port found free may be taken by somebody else before the server binds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is: other servers of its deployment are told of it."""

    root_url: str
    bootstrap_port: int = 0

    @classmethod
    def of(cls, spec: ServerSpec) -> "Address":
        """Return the address of a server: the given one, or a free port of this machine."""
        root = spec.base_url or f"http://{_HOST}:{free_port()}"
        wanted = any("{bootstrap_port}" in text for text in (*spec.launch, *spec.env.values()))
        return cls(root_url=root.removesuffix("/v1"), bootstrap_port=free_port() if wanted else 0)

    @property
    def words(self) -> dict[str, str]:
        """What placeholders say of it, by name."""
        parts = urlsplit(self.root_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return {
            "url": self.root_url,
            "port": str(port),
            "host": parts.hostname or "",
            "bootstrap_port": str(self.bootstrap_port),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A launch command with its placeholders filled in."""

    arguments: tuple[str, ...]
    root_url: str
    env: Mapping[str, str] = field(default_factory=dict)
    teardown: tuple[str, ...] = ()

    @property
    def port(self) -> int:
        """Port that the server answers at."""
        return int(Address(root_url=self.root_url).words["port"])


def fill_in(
    spec: ServerSpec,
    extra: tuple[str, ...],
    address: Address,
    others: Mapping[str, Address] | None = None,
) -> Command:
    """Return the command for this address, with the extra arguments at its end.

    Args:
        spec: of the server.
        extra: further arguments, taken as they are.
        address: of the server itself.
        others: addresses of all roles, for {ROLE.url} and its like.
    """
    words = placeholders(address, others or {})
    return Command(
        arguments=(*(fill(word, words) for word in (*spec.launch, *spec.toggle_args)), *extra),
        root_url=address.root_url,
        env={name: fill(text, words) for name, text in {**spec.env, **spec.toggle_env}.items()},
        teardown=tuple(fill(word, words) for word in spec.teardown),
    )


def placeholders(address: Address, others: Mapping[str, Address]) -> dict[str, str]:
    """Return what each placeholder stands for."""
    words = {"python": sys.executable, **address.words}
    for role, other in others.items():
        words |= {f"{role}.{name}": value for name, value in other.words.items()}
    return words


def fill(text: str, words: Mapping[str, str]) -> str:
    """Return a text with its placeholders filled in; what is filled in is not looked at again."""
    return _PLACEHOLDER.sub(lambda found: words.get(found[1], found[0]), text)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """A launched server. `stop` may be called from any thread, and more than once."""

    def __init__(
        self,
        command: Command,
        spec: ServerSpec,
        *,
        environ: Mapping[str, str],
        log_path: Path | None,
        redactor: Redactor,
    ) -> None:
        """Start the command.

        Raises:
            LaunchError: the working folder or the supervisor cannot be used.
        """
        self.command = command
        self._grace_s = spec.teardown_grace_s
        how = (str(self._grace_s), spec.teardown_signal, json.dumps(command.teardown))
        arguments = [sys.executable, "-I", "-S", str(_SUPERVISOR), *how, "--"]
        try:
            self._process = subprocess.Popen(
                [*arguments, *command.arguments],
                cwd=spec.cwd,
                env={**environ, **command.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(
                f"cannot start {spec.name!r} in {spec.cwd}: {error.strerror}"
            ) from error
        if self._process.stdout is None:
            raise LaunchError(f"no pipe to the output of {spec.name!r}")
        self.log = ServerLog(self._process.stdout, log_path, redactor)
        atexit.register(self.stop)

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Exit status once the command has ended, None while it runs."""
        return self._process.poll()

    def wait(self, limit_s: float) -> int | None:
        """Wait for the command's own end; return its exit status, None when it still runs."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """End the server and all that it started; returns when they are gone."""
        atexit.unregister(self.stop)
        if self._process.stdin and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()  # the supervisor's order to end the group
        try:
            self._process.wait(2 * self._grace_s + 10.0)  # a teardown command has its own
        except subprocess.TimeoutExpired:
            self._process.kill()  # on Linux the command dies with its supervisor
            self._process.wait()
        self.log.close()

    def describe(self) -> str:
        """Say how the server is, with the last lines of its log; "" while it runs well."""
        status = self.exit_status
        if status is None:
            return ""
        return f"The server has ended with status {status}; its last lines: {self.last_words()}"

    def last_words(self) -> str:
        """Return the last lines of the log in one line."""
        lines = [line.strip()[:300] for line in self.log.last_lines()]
        return " | ".join(lines) or "(it printed nothing)"


async def launch(
    spec: ServerSpec,
    *,
    extra: tuple[str, ...],
    environ: Mapping[str, str],
    log_path: Path | None,
    redactor: Redactor,
    address: Address | None = None,
    others: Mapping[str, Address] | None = None,
) -> ServerProcess:
    """Start a server and wait until it is ready.

    Args:
        spec: of the server.
        extra: further arguments of its command.
        environ: that it inherits.
        log_path: file for its output; None keeps the end only.
        redactor: of the run.
        address: where it must be; otherwise the given one or a free port, again when it was taken.
        others: addresses of the other roles.

    Raises:
        LaunchError: it ended or was not ready in time, with the last lines of its log; or somebody
            else answers at its address already.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        where = address or Address.of(spec)
        if spec.base_url:
            await _refuse_answering(spec, where.root_url, redactor)
        command = fill_in(spec, extra, where, others)
        process = ServerProcess(
            command, spec, environ=environ, log_path=log_path, redactor=redactor
        )
        try:
            await _wait_until_ready(process, spec)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(process.stop)
            port_taken = "address already in use" in process.last_words().lower()
            again = port_taken and attempt < _ATTEMPTS and not (address or spec.base_url)
            if isinstance(error, LaunchError) and again:
                continue
            raise
        else:
            return process
    raise LaunchError(f"no free port for {spec.name!r}")


async def _refuse_answering(spec: ServerSpec, root_url: str, redactor: Redactor) -> None:
    """Refuse to launch where a server answers already: it would be measured in place of ours."""
    transport = Transport(root_url, redactor=redactor)
    try:
        await transport.fetch("GET", root_url + spec.readiness_path, timeout_s=2.0)
    except EndpointError:
        return
    finally:
        await transport.aclose()
    raise LaunchError(
        f"a server answers at {root_url} before {spec.name!r} was launched: stop it, or leave the"
        " launch command out to measure it as it is"
    )


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


async def _wait_until_ready(process: ServerProcess, spec: ServerSpec) -> None:
    async def ended() -> None:
        if process.exit_status is not None:
            await anyio.to_thread.run_sync(process.log.close)
            raise LaunchError(
                f"{spec.name!r} ended with status {process.exit_status} before it was ready;"
                f" its last lines: {process.last_words()}"
            )

    await wait_until_ready(
        spec,
        process.command.root_url,
        process.log.redactor,
        check=ended,
        last_words=process.last_words,
    )


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
