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


class FromFile(NamedTuple):
    """A value that the file sets, and its "file:line"."""

    value: Any
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSpec:
    """One deployment as described; nothing here has been tried yet.

    Attributes:
        name: key under [deployments]; "url" for a given URL.
        base_url: where a server that is not launched answers, with its /v1.
        launch: command as an argument list, no shell; `{python}` and `{port}` are filled in.
        cwd: folder that the command starts in: where fidelity.toml lies.
        env: further environment of the command, no secrets.
        readiness_path: GET under the server's root that answers 200 when it is ready.
        readiness_timeout_s: how long that may take.
        teardown_grace_s: between the polite and the final signal.
        log: a log file that the server writes itself.
        expects: capabilities promised; an absent or unproven one is an error.
        reasoning: where reasoning text stands: a field, inline <think>, or auto.
        request: the request profile, file-wide and deployment merged.
        overrides: options that the deployment sets, by field name.
    """

    name: str
    base_url: str | None = None
    launch: tuple[str, ...] = ()
    cwd: Path = field(default_factory=Path)
    env: Mapping[str, str] = field(default_factory=dict)
    readiness_path: str = "/health"
    readiness_timeout_s: float = 120.0
    teardown_grace_s: float = 10.0
    log: Path | None = None
    expects: tuple[str, ...] = ()
    reasoning: str = "auto"
    request: RequestProfile = field(default_factory=RequestProfile)
    overrides: Mapping[str, FromFile] = field(default_factory=dict)

    @property
    def model(self) -> str | None:
        """Model name that the file gives, before flags and environment."""
        model = self.overrides.get("model")
        return str(model.value) if model is not None else None
