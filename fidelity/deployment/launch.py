"""Starts a deployment's command and ends it again, with everything that it started.

No shell, a process group of its own under a supervisor that ends it when the harness is gone, a
free port, a bounded log.
"""

import atexit
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio

from fidelity.config.deployment_spec import ServerSpec
from fidelity.config.redaction import Redactor
from fidelity.deployment.command import Address, Command, fill_in
from fidelity.deployment.readiness import wait_until_ready
from fidelity.deployment.server_log import ServerLog
from fidelity.deployment.session import end_session
from fidelity.endpoint.transport import Transport
from fidelity.errors import EndpointError, LaunchError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_SUPERVISOR_S = 20.0
"""That a supervisor gets beside its grace periods, until it counts as hung."""
_ATTEMPTS = 3
"""A port found free may be taken by somebody else before the server binds it."""


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
        self._ended = False
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
            # a teardown command has its own grace; the rest is the supervisor's for what is left
            killed = self._process.wait(2 * self._grace_s + _SUPERVISOR_S) < 0
        except subprocess.TimeoutExpired:
            killed = True
        if killed and not self._ended:
            end_session(self._process.pid, reaped=self.exit_status is not None)
            with suppress(subprocess.TimeoutExpired):  # the kernel may hold it for longer
                self._process.wait(_SUPERVISOR_S)
        self._ended = True
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
