"""What fidelity.toml says about one deployment: how to reach it, launch it, and what it promises.

A deployment given by URL alone has a spec too: no launch command, no promise, passive traffic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fidelity.config.profile import RequestProfile

GIVEN_URL = "url"
"""Name of the deployment that `--base-url` describes."""

CAPABILITIES = (
    "chat",
    "completions",
    "stream",
    "usage",
    "models",
    "tokenize",
    "detokenize",
    "cached_tokens",
    "prefix_cache",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "token_ids",
    "seed",
    "stop",
    "tools",
    "reasoning",
    "metrics",
    "server_info",
    "patches",
    "abort",
    "flush",
)
"""Every capability that a deployment can expect and discovery can find, in report order."""

REASONING_STYLES = ("auto", "field", "inline")
SIGNALS = ("TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "KILL")
ROUTER = "router"
ROLES = (ROUTER, "prefill", "decode")
"""What a process of a deployment does; several of one kind are numbered: "decode-2"."""


class FromFile(NamedTuple):
    """A value that the file sets, and its "file:line"."""

    value: Any
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One server process as described: who starts it, when it is ready, how it ends.

    Attributes:
        name: what to call it in messages: the deployment, or "deployment/role".
        base_url: where it answers, with its /v1; with a launch command, the address that the
            command serves at by itself.
        launch: command as an argument list, no shell; placeholders are filled in.
        toggle_args: what switches patches on and off, after the command's own arguments.
        toggle_env: the same, as environment.
        cwd: folder that every command starts in: where fidelity.toml lies.
        env: further environment of the commands, no secrets; placeholders are filled in.
        readiness_path: GET under the server's root that answers 200 when it is ready.
        readiness_timeout_s: how long that may take.
        teardown: a command that ends the server, for one that does not die with its command.
        teardown_signal: what the command's process group is sent first, without SIG.
        teardown_grace_s: between the polite and the final signal; also bounds `teardown`.
        restart: a command that restarts a server which the harness did not launch.
        log: a log file that the server writes itself.
        host: machine that it runs on, for messages.
        manual: a person starts it; the run says so, and waits.
        patches: [[patch]] entries that are live in it, "NAME" or "NAME=VALUE"; None: not told.
    """

    name: str
    base_url: str | None = None
    launch: tuple[str, ...] = ()
    toggle_args: tuple[str, ...] = ()
    toggle_env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = field(default_factory=Path)
    env: Mapping[str, str] = field(default_factory=dict)
    readiness_path: str = "/health"
    readiness_timeout_s: float = 120.0
    teardown: tuple[str, ...] = ()
    teardown_signal: str = "TERM"
    teardown_grace_s: float = 10.0
    restart: tuple[str, ...] = ()
    log: Path | None = None
    host: str = ""
    manual: bool = False
    patches: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSpec(ServerSpec):
    """One deployment as described; nothing here has been tried yet.

    Attributes:
        roles: its processes by role, in the order in which they start; {} for a single server.
            The router's address is the deployment's.
        expects: capabilities promised; an absent or unproven one is an error.
        required: patterns of claims that must be measured; "not applicable" is not enough.
        reasoning: where reasoning text stands: a field, inline <think>, or auto.
        encoding: golden vectors of the model's chat encoding: a name, or a file ending in .json.
        request: the request profile, file-wide and deployment merged.
        overrides: options that the deployment sets, by field name.
    """

    roles: Mapping[str, ServerSpec] = field(default_factory=dict)
    expects: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    reasoning: str = "auto"
    encoding: str | None = None
    request: RequestProfile = field(default_factory=RequestProfile)
    overrides: Mapping[str, FromFile] = field(default_factory=dict)

    @property
    def commands(self) -> list[tuple[str, ...]]:
        """What its processes are started, ended and restarted with, and their environment."""
        return [
            words
            for server in (self, *self.roles.values())
            for words in (
                (*server.launch, *server.toggle_args),
                server.teardown,
                server.restart,
                tuple(f"{name}={text}" for name, text in server.env.items()),
                tuple(f"{name}={text}" for name, text in server.toggle_env.items()),
            )
        ]

    @property
    def model(self) -> str | None:
        """Model name that the file gives, before flags and environment."""
        model = self.overrides.get("model")
        return str(model.value) if model is not None else None

    @property
    def front(self) -> ServerSpec:
        """What the suites ask: the router of a deployment with roles, else the server itself."""
        return self.roles[ROUTER] if self.roles else self
