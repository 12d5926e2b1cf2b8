"""A deployment that is open: launched where it must be, ready, explored, with a client to it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from fidelity.config.deployment_spec import ROUTER, DeploymentSpec, ServerSpec
from fidelity.config.profile import RequestProfile
from fidelity.config.settings import Settings
from fidelity.deployment.capabilities import Capabilities
from fidelity.deployment.discovery import discover
from fidelity.deployment.launch import ServerProcess
from fidelity.deployment.patch_states import patch_states
from fidelity.deployment.servers import Announce, Servers, Terms, start_servers
from fidelity.endpoint.caps import Caps
from fidelity.endpoint.client import Client
from fidelity.endpoint.pacing import Pacer
from fidelity.endpoint.server_calls import Server
from fidelity.endpoint.timeouts import Timeouts
from fidelity.endpoint.transport import Transport
from fidelity.errors import ConfigError, EndpointError
from fidelity.records import PatchState

DEFAULT_PREFILL_TOKENS_PER_S = 200.0
"""When usage does not tell the speed: that of a small model on a small machine."""


@dataclass(slots=True, kw_only=True)
class Deployment:
    """One open deployment; `aclose` ends what `open_deployment` started.

    Attributes:
        spec: as described.
        client: speaks to it, within the caps of the run.
        capabilities: as discovered.
        server_info: what the server tells about itself, without secrets; {} where it does not.
        process: the launched server, None for one that the harness did not start.
        roles: its other processes by role ("prefill", "decode", …), each with a client of its own
            that shares the run's caps. Their capabilities are the router's, as long as nobody has
            asked them; {} for a deployment without roles.
        servers: all processes behind it; None for a role, whose deployment owns them.
        patches: as they were when it was opened.
    """

    spec: DeploymentSpec
    client: Client
    capabilities: Capabilities
    server_info: dict[str, Any]
    process: ServerProcess | None = None
    roles: "Mapping[str, Deployment]" = field(default_factory=dict)
    servers: Servers | None = None
    patches: tuple[PatchState, ...] = ()

    @property
    def name(self) -> str:
        """Name under [deployments], "url" for a given URL."""
        return self.spec.name

    @property
    def base_url(self) -> str:
        """Where it answers, with its /v1."""
        return self.client.transport.base_url

    @property
    def model(self) -> str:
        """Model name that is asked for."""
        return self.client.server.model

    @property
    def expects(self) -> tuple[str, ...]:
        """Capabilities that it promises."""
        return self.spec.expects

    @property
    def profile(self) -> RequestProfile:
        """The request profile."""
        return self.spec.request

    @property
    def launched(self) -> bool:
        """True when the harness started the server itself."""
        return self.process is not None

    @property
    def launch_command(self) -> tuple[str, ...]:
        """The launch command as it ran; () for a given URL. Ask the redactor before storing."""
        return self.process.command.arguments if self.process else ()

    async def aclose(self) -> None:
        """Close the connections and end every launched server with all that it started."""
        for role in self.roles.values():
            await role.aclose()
        await self.client.aclose()
        if self.servers is not None:
            await anyio.to_thread.run_sync(self.servers.stop)


def to_stderr(line: str) -> None:
    """Tell a person something while a deployment opens."""
    print(f"fidelity: {line}", file=sys.stderr, flush=True)


async def open_deployment(
    settings: Settings, *, run_dir: Path | None, announce: Announce = to_stderr
) -> Deployment:
    """Launch a deployment where it has a command, wait for it, and discover what it can do.

    Args:
        settings: of the run.
        run_dir: a launched server's output goes to server.log there; None keeps its end only.
        announce: told what a person has to do: start a server that is `manual`.

    Raises:
        LaunchError: a server could not be started, or was not ready in time.
        EndpointError: it does not answer as an OpenAI-compatible server does.
        ConfigError: no model is named and several are served; a certificate cannot be used.
    """
    spec = settings.target
    servers = await start_servers(
        spec,
        Terms(
            extra=settings.launch_arg,
            environ=settings.environ,
            run_dir=run_dir,
            redactor=settings.redactor,
            announce=announce,
        ),
    )
    client: Client | None = None
    roles: dict[str, Deployment] = {}
    try:
        client = connect(settings, servers)
        capabilities = await discover(
            client,
            model=settings.model,
            dialect=settings.dialect,
            expects=spec.expects,
            reasoning=spec.reasoning,
        )
        speed = capabilities.speed
        client.caps.derive(
            settings.budget,
            speed.prefill_tokens_per_s or DEFAULT_PREFILL_TOKENS_PER_S,
            speed.decode_tokens_per_s,
            measured=speed.prefill_tokens_per_s is not None,
        )
        info = await client.server_info() if client.server.has_server_info else {}
        for role, server in spec.roles.items():
            if role != ROUTER:
                roles[role] = await _open_role(settings, servers, role, server, client)
                roles[role].capabilities = capabilities
        opened = Deployment(
            spec=spec,
            client=client,
            capabilities=capabilities,
            server_info=info,
            process=servers.front,
            roles=roles,
            servers=servers,
        )
        opened.patches = tuple(await patch_states(opened, settings.file.patches))
    except BaseException:
        with anyio.CancelScope(shield=True):
            for worker in roles.values():
                await worker.aclose()
            if client is not None:
                await client.aclose()
            await anyio.to_thread.run_sync(servers.stop)
        raise
    return opened


async def _open_role(
    settings: Settings, servers: Servers, role: str, server: ServerSpec, front: Client
) -> Deployment:
    """Return one role, with a client that knows of its server what is known of the router.

    Nothing is generated: a worker that only answers through its router is no error here.
    """
    client = connect(settings, servers, role=role)
    client.caps = front.caps
    known = front.server
    client.server = replace(
        known, has_server_info=False, has_metrics=False, describe_failure=servers.describe
    )
    spec = replace(
        settings.target,
        name=server.name,
        base_url=client.transport.base_url,
        log=server.log,
        host=server.host,
        patches=server.patches,
        roles={},
        expects=(),
    )
    info: dict[str, Any] = {}
    try:
        info = await client.server_info()
        client.server.has_server_info = bool(info)
        client.server.has_metrics = bool(await client.metrics())
    except EndpointError:
        pass  # it tells nothing of itself: `server_info` stays empty, and that is what is shown
    return Deployment(
        spec=spec,
        client=client,
        capabilities=Capabilities(states={}),
        server_info=info,
        process=servers.processes.get(role),
    )


def connect(
    settings: Settings, servers: Servers | None = None, *, role: str | None = None
) -> Client:
    """Return a client for the target; must run in the event loop that will use it.

    Args:
        settings: of the run.
        servers: that were started for it; without them it is reached by its base_url.
        role: whose server is meant; otherwise the one that the suites ask.

    Raises:
        ConfigError: a certificate file cannot be used, or nothing says where the server is.
    """
    spec = settings.target
    name = role if role is not None or servers is None else servers.front_role
    process = servers.processes.get(name or "") if servers else None
    server_spec = spec.roles[name] if name else spec.front
    base_url = f"{process.command.root_url}/v1" if process else server_spec.base_url
    if base_url is None:
        raise ConfigError(f"deployment {spec.name!r} has no base_url and was not launched")
    transport = Transport(
        base_url,
        profile=spec.request,
        headers=_secret_headers(settings),
        redactor=settings.redactor,
    )
    server = Server(model=settings.model or "", key_env=settings.api_key_env)
    server.shared = process is None
    if servers is not None:
        server.describe_failure = servers.describe
    return Client(
        transport,
        server,
        caps=Caps(
            max_requests=settings.max_requests,
            max_tokens=settings.max_tokens,
            allow=settings.allow,
        ),
        pacer=Pacer(
            concurrency=settings.concurrency,
            load_concurrency=settings.load_concurrency,
            max_wait_s=settings.max_wait_s,
        ),
        timeouts=Timeouts(settings.timeout_s),
        profile=spec.request,
        replica_headers=settings.replica_header,
    )


def _secret_headers(settings: Settings) -> Mapping[str, str]:
    headers = dict(settings.headers_from_env)
    if settings.api_key:
        headers["Authorization"] = f"Bearer {settings.api_key}"
    return headers
