"""The processes of one deployment: started in order, each ready before the next, ended together.

A deployment without roles has one, under the name "".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from fidelity.config.deployment_spec import ROUTER, DeploymentSpec, ServerSpec
from fidelity.config.redaction import Redactor
from fidelity.deployment.command import Address, Command, fill, placeholders
from fidelity.deployment.launch import ServerProcess, launch
from fidelity.deployment.readiness import wait_for_manual, wait_until_ready
from fidelity.errors import ConfigError, LaunchError

_RESTART_LIMIT_S = 600.0
Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What starting needs of a run.

    Attributes:
        extra: further arguments of launch commands; "ROLE:ARGUMENT" is for that role alone.
        environ: that the servers inherit.
        run_dir: their output goes to server.log there, server-ROLE.log of several.
        redactor: of the run.
        announce: told what a person has to do.
    """

    extra: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    run_dir: Path | None = None
    redactor: Redactor = field(default_factory=Redactor)
    announce: Announce = print


class Servers:
    """Started by `start_servers`; `stop` may be called from any thread, and more than once."""

    def __init__(self, spec: DeploymentSpec, terms: Terms) -> None:
        """Choose the addresses; nothing is started yet."""
        self._terms = terms
        self._specs: dict[str, ServerSpec] = dict(spec.roles) or {"": spec}
        self.front_role = ROUTER if spec.roles else ""
        self.addresses = {role: Address.of(server) for role, server in self._specs.items()}
        self.processes: dict[str, ServerProcess] = {}

    @property
    def front(self) -> ServerProcess | None:
        """The process that the suites ask, None where the harness did not launch it."""
        return self.processes.get(self.front_role)

    async def start(self) -> None:
        """Start or await every server, in order.

        Raises:
            LaunchError: one could not be started; what was started has ended.
        """
        try:
            for role in self._specs:
                await self._start_one(role)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.stop)
            raise

    async def restart(self, role: str = "") -> None:
        """End one server and start it again, at the same address.

        Raises:
            LaunchError: it cannot be restarted by the harness, or did not come back.
        """
        spec = self._specs[role]
        if spec.launch:
            process = self.processes.pop(role, None)
            if process is not None:
                await anyio.to_thread.run_sync(process.stop)
            await self._launch(role, self.addresses[role])
        elif spec.restart:
            await self._run_restart(role)
            await wait_until_ready(spec, self.addresses[role].root_url, self._terms.redactor)
        else:
            raise LaunchError(
                f"{spec.name!r} cannot be restarted: it has neither a launch nor a restart command"
            )

    def stop(self) -> None:
        """End all servers, the last one started first."""
        for role in reversed(list(self.processes)):
            self.processes[role].stop()

    def describe(self) -> str:
        """Say which servers have ended, with the last lines of their logs; "" while all run."""
        said = [(role, process.describe()) for role, process in self.processes.items()]
        return " ".join(f"{role}: {text}" if role else text for role, text in said if text)

    async def _start_one(self, role: str) -> None:
        spec = self._specs[role]
        if spec.launch:
            # without others that know its port, a taken one is replaced
            alone = len(self._specs) == 1
            await self._launch(role, None if alone else self.addresses[role])
        elif spec.manual:
            await wait_for_manual(spec, self._terms.announce, self._terms.redactor)

    async def _launch(self, role: str, address: Address | None) -> None:
        terms = self._terms
        process = await launch(
            self._specs[role],
            extra=arguments_for(role, terms.extra, self._specs),
            environ=terms.environ,
            log_path=terms.run_dir / log_name(role) if terms.run_dir else None,
            redactor=terms.redactor,
            address=address,
            others=self.addresses,
        )
        self.processes[role] = process
        self.addresses[role] = Address(
            root_url=process.command.root_url, bootstrap_port=self.addresses[role].bootstrap_port
        )

    async def _run_restart(self, role: str) -> None:
        spec, terms = self._specs[role], self._terms
        words = placeholders(self.addresses[role], self.addresses)
        command = Command(
            arguments=tuple(fill(word, words) for word in spec.restart),
            root_url=self.addresses[role].root_url,
            env={name: fill(text, words) for name, text in spec.env.items()},
        )
        process = ServerProcess(
            command, spec, environ=terms.environ, log_path=None, redactor=terms.redactor
        )
        try:
            status = await anyio.to_thread.run_sync(
                process.wait, _RESTART_LIMIT_S, abandon_on_cancel=True
            )
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(process.stop)
        if status != 0:
            how = "did not end" if status is None else f"ended with status {status}"
            raise LaunchError(
                f"the restart command of {spec.name!r} {how}; its last lines:"
                f" {process.last_words()}"
            )


def log_name(role: str) -> str:
    """Return the name of a server's log in the run folder."""
    return f"server-{role}.log" if role else "server.log"


def arguments_for(
    role: str, extra: tuple[str, ...], roles: Mapping[str, ServerSpec]
) -> tuple[str, ...]:
    """Return the further arguments of one role: those for it alone, and those for every role."""
    kept: list[str] = []
    for argument in extra:
        named, colon, rest = argument.partition(":")
        if not colon or named not in roles:
            kept.append(argument)
        elif named == role:
            kept.append(rest)
    return tuple(kept)


async def start_servers(spec: DeploymentSpec, terms: Terms) -> Servers:
    """Start or await all servers of a deployment.

    Raises:
        LaunchError: one could not be started or was not ready in time; none is left behind.
        ConfigError: further arguments, and nothing to launch that could take them.
    """
    servers = Servers(spec, terms)
    if terms.extra and not any(server.launch for server in (*spec.roles.values(), spec)):
        shown = terms.redactor.text(terms.redactor.arguments(terms.extra)[0])
        raise ConfigError(
            f"--launch-arg={shown}: deployment {spec.name!r} is not launched by the run"
        )
    await servers.start()
    return servers
