"""A deployment that is open: launched where it must be, ready, explored, with a client to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from fidelity.config.deployment_spec import DeploymentSpec
from fidelity.config.profile import RequestProfile
from fidelity.config.settings import Settings
from fidelity.deployment.capabilities import Capabilities
from fidelity.deployment.discovery import discover
from fidelity.deployment.launch import ServerProcess, launch
from fidelity.endpoint.caps import Caps
from fidelity.endpoint.client import Client
from fidelity.endpoint.pacing import Pacer
from fidelity.endpoint.server_calls import Server
from fidelity.endpoint.timeouts import Timeouts
from fidelity.endpoint.transport import Transport
from fidelity.errors import ConfigError

LOG_NAME = "server.log"
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
        process: the launched server, None for a given URL.
    """

    spec: DeploymentSpec
    client: Client
    capabilities: Capabilities
    server_info: dict[str, Any]
    process: ServerProcess | None = None

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
        """Close the connections and end a launched server with all that it started."""
        await self.client.aclose()
        if self.process is not None:
            await anyio.to_thread.run_sync(self.process.stop)


async def open_deployment(settings: Settings, *, run_dir: Path | None) -> Deployment:
    """Launch a deployment where it has a command, wait for it, and discover what it can do.

    Args:
        settings: of the run.
        run_dir: a launched server's output goes to server.log there; None keeps its end only.

    Raises:
        LaunchError: the server could not be started, or was not ready in time.
        EndpointError: it does not answer as an OpenAI-compatible server does.
        ConfigError: no model is named and several are served; a certificate cannot be used.
    """
    spec = settings.target
    process = None
    if spec.launch:
        process = await launch(
            spec,
            extra=settings.launch_arg,
            environ=settings.environ,
            log_path=run_dir / LOG_NAME if run_dir else None,
            redactor=settings.redactor,
        )
    client: Client | None = None
    try:
        client = connect(settings, process)
        capabilities = await discover(
            client,
            model=settings.model,
            dialect=settings.dialect,
            expects=spec.expects,
            reasoning=spec.reasoning,
        )
        speed = capabilities.speed.prefill_tokens_per_s or DEFAULT_PREFILL_TOKENS_PER_S
        client.caps.derive(settings.budget, speed)
        info = await client.server_info() if client.server.has_server_info else {}
    except BaseException:
        with anyio.CancelScope(shield=True):
            if client is not None:
                await client.aclose()
            if process is not None:
                await anyio.to_thread.run_sync(process.stop)
        raise
    return Deployment(
        spec=spec, client=client, capabilities=capabilities, server_info=info, process=process
    )


def connect(settings: Settings, process: ServerProcess | None = None) -> Client:
    """Return a client for the target; must run in the event loop that will use it.

    Raises:
        ConfigError: a certificate file cannot be used, or nothing says where the server is.
    """
    spec = settings.target
    base_url = f"{process.command.root_url}/v1" if process else spec.base_url
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
    if process is not None:
        server.describe_failure = process.describe
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
