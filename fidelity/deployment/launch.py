"""Starts a deployment's command and ends it again, with everything that it started.

No shell, a process group of its own under a supervisor that ends it when the harness is gone, a
free port, a bounded log.
"""

import atexit
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from fidelity.config.deployment_spec import DeploymentSpec
from fidelity.config.redaction import Redactor
from fidelity.deployment.server_log import ServerLog
from fidelity.endpoint.transport import Transport
from fidelity.errors import EndpointError, LaunchError

_HOST = "127.0.0.1"
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_READY_POLL_S = 0.1
_ATTEMPTS = 3
"""A port found free may be taken by somebody else before the server binds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A launch command with its placeholders filled in."""

    arguments: tuple[str, ...]
    port: int

    @property
    def root_url(self) -> str:
        """Where the server will answer."""
        return f"http://{_HOST}:{self.port}"


def fill_in(spec: DeploymentSpec, extra: tuple[str, ...], port: int) -> Command:
    """Return the command with this port, the running Python, and the extra arguments at its end."""
    words = {"python": sys.executable, "port": str(port)}
    filled = [_fill(word, words) for word in spec.launch]
    return Command(arguments=(*filled, *extra), port=port)


def _fill(text: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        text = text.replace("{" + name + "}", value)
    return text


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
        spec: DeploymentSpec,
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
        arguments = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(self._grace_s), "--"]
        try:
            self._process = subprocess.Popen(
                [*arguments, *command.arguments],
                cwd=spec.cwd,
                env={**environ, **spec.env},
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

    def stop(self) -> None:
        """End the server and all that it started; returns when they are gone."""
        atexit.unregister(self.stop)
        if self._process.stdin and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()  # the supervisor's order to end the group
        try:
            self._process.wait(self._grace_s + 10.0)
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
    spec: DeploymentSpec,
    *,
    extra: tuple[str, ...],
    environ: Mapping[str, str],
    log_path: Path | None,
    redactor: Redactor,
) -> ServerProcess:
    """Start a deployment and wait until it is ready.

    Raises:
        LaunchError: it ended or was not ready in time; with the last lines of its log.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        command = fill_in(spec, extra, free_port())
        process = ServerProcess(
            command, spec, environ=environ, log_path=log_path, redactor=redactor
        )
        try:
            await _wait_until_ready(process, spec)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(process.stop)
            port_taken = "address already in use" in process.last_words().lower()
            if isinstance(error, LaunchError) and port_taken and attempt < _ATTEMPTS:
                continue
            raise
        else:
            return process
    raise LaunchError(f"no free port for {spec.name!r}")


async def _wait_until_ready(process: ServerProcess, spec: DeploymentSpec) -> None:
    deadline = time.monotonic() + spec.readiness_timeout_s
    transport = Transport(process.command.root_url, redactor=process.log.redactor)
    try:
        while (seen := await _ask_ready(transport, process, spec)) is not None:
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"{spec.name!r} was not ready within {spec.readiness_timeout_s:g} s ({seen});"
                    f" its last lines: {process.last_words()}"
                )
            await anyio.sleep(_READY_POLL_S)
    finally:
        await transport.aclose()


async def _ask_ready(
    transport: Transport, process: ServerProcess, spec: DeploymentSpec
) -> str | None:
    """Return None when the server is ready, else what it said."""
    if process.exit_status is not None:
        await anyio.to_thread.run_sync(process.log.close)
        raise LaunchError(
            f"{spec.name!r} ended with status {process.exit_status} before it was ready;"
            f" its last lines: {process.last_words()}"
        )
    url = transport.root_url + spec.readiness_path
    try:
        answer = await transport.fetch("GET", url, timeout_s=2.0)
    except EndpointError as error:
        return str(error)
    return None if answer.status == 200 else f"GET {url} answered {answer.status}"
