"""fidelity.toml: which deployments there are, how they start, what they promise.

Unknown keys, wrong types and secrets in the file are refused with file, line and nearest match.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fidelity.config.config_table import Lines, Table
from fidelity.config.deployment_spec import CAPABILITIES, REASONING_STYLES, DeploymentSpec, FromFile
from fidelity.config.kinds import (
    BOOLEAN,
    ENV_NAME,
    PATH,
    TEXT,
    URL,
    Kind,
    Unreadable,
    nearest,
    one_of,
    seconds,
)
from fidelity.config.options import OPTIONS
from fidelity.config.profile import SAMPLING_KEYS, RequestProfile
from fidelity.config.redaction import is_secret_name
from fidelity.errors import ConfigError

FILE_NAME = "fidelity.toml"
_MAX_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")
PLACEHOLDERS = ("python", "port")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A whole fidelity.toml, checked. `harness` maps option fields to values."""

    path: Path | None = None
    default: str | None = None
    harness: Mapping[str, FromFile] = field(default_factory=dict)
    request: RequestProfile = field(default_factory=RequestProfile)
    deployments: Mapping[str, DeploymentSpec] = field(default_factory=dict)

    def deployment(self, name: str) -> DeploymentSpec:
        """Return one deployment.

        Raises:
            ConfigError: no such name; says which there are.
        """
        if name in self.deployments:
            return self.deployments[name]
        known = ", ".join(sorted(self.deployments)) or "none"
        where = self.path or f"no {FILE_NAME} found"
        raise ConfigError(
            f"unknown deployment {name!r} ({where}){nearest(name, self.deployments)}."
            f" Known: {known}"
        )


def find_config(start: Path) -> Path | None:
    """Return the nearest fidelity.toml in `start` or a folder above it."""
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def read_config(path: Path) -> ConfigFile:
    """Read and check a fidelity.toml.

    Raises:
        ConfigError: unreadable, no TOML, unknown key, wrong type, or a secret in the file.
    """
    try:
        raw = path.read_bytes()
        text = raw[:_MAX_BYTES].decode()
        data = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    root = Table(data, (), Lines.of(path, text))
    request = root.table("request")
    deployments = root.table("deployments")
    config = ConfigFile(
        path=path,
        default=root.take("default", TEXT),
        harness=_options(root.table("harness"), everything=True),
        request=_profile(request, RequestProfile(), path.parent),
        deployments={
            name: _deployment(deployments.table(name), name, request, path.parent)
            for name in deployments.names
        },
    )
    root.finish()
    if config.default is not None and config.default not in config.deployments:
        hint = nearest(config.default, config.deployments)
        raise root.refuse("default", f"no [deployments.{config.default}]{hint}")
    return config


def _options(table: Table, *, everything: bool) -> dict[str, FromFile]:
    """Return the options that a table sets, each read by its own kind, with its line."""
    chosen = [option for option in OPTIONS if everything or option.per_deployment]
    found: dict[str, FromFile] = {}
    for option in chosen:
        if option.dest in {"config", "resume"}:
            continue
        read = table.take_list if option.split else table.take
        value = read(option.dest, option.kind)
        if option.dest in table.names:
            found[option.dest] = FromFile(value, table.where(option.dest))
    if everything:
        table.finish()
    return found


def _deployment(table: Table, name: str, request: Table, folder: Path) -> DeploymentSpec:
    if not _NAME.match(name):
        raise table.refuse(name, "a deployment's name is letters, digits, dot, dash, underscore")
    if "api_key" in table.names:
        raise table.refuse(
            "api_key", 'a key is named by environment variable, write api_key_env = "NAME"'
        )
    spec = DeploymentSpec(
        name=name,
        base_url=table.take("base_url", URL),
        launch=table.take_list("launch", TEXT),
        cwd=folder.resolve(),
        env=_texts(table.table("env")),
        readiness_path=table.take("readiness_path", _URL_PATH, "/health"),
        readiness_timeout_s=table.take("readiness_timeout_s", seconds(0.1, 86_400), 120.0),
        teardown_grace_s=table.take("teardown_grace_s", seconds(0, 3_600), 10.0),
        log=_below(folder, table.take("log", PATH)),
        expects=table.take_list("expects", one_of(CAPABILITIES)),
        reasoning=table.take("reasoning", one_of(REASONING_STYLES), "auto"),
        request=_profile(
            table.table("request"), _profile(request, RequestProfile(), folder), folder
        ),
        overrides=_options(table, everything=False),
    )
    table.finish()
    _check_launch(table, spec)
    return spec


def _check_launch(table: Table, spec: DeploymentSpec) -> None:
    if bool(spec.launch) == bool(spec.base_url):
        raise table.refuse(
            "launch" if spec.launch else "base_url",
            "a deployment has either a launch command or a base_url",
        )
    for word in spec.launch:
        for placeholder in _PLACEHOLDER.findall(word):
            if placeholder not in PLACEHOLDERS:
                known = ", ".join("{" + name + "}" for name in PLACEHOLDERS)
                raise table.refuse(
                    "launch",
                    f"unknown placeholder {{{placeholder}}}{nearest(placeholder, PLACEHOLDERS)}."
                    f" Known: {known}",
                )
    if spec.launch and not any("{port}" in word for word in spec.launch):
        raise table.refuse("launch", "the command must take the chosen port as {port}")


def _texts(table: Table) -> dict[str, str]:
    texts = {key: table.take(key, TEXT) for key in table.names}
    for key in texts:
        if is_secret_name(key):
            raise table.refuse(
                key, "a secret is not written into the file; export it before the run instead"
            )
    return texts


def _profile(table: Table, below: RequestProfile, folder: Path) -> RequestProfile:
    """Read [request] on top of `below`; mappings are merged, single values replaced."""
    sampling = {key: table.take(key, _NUMBER) for key in SAMPLING_KEYS}
    extra = table.table("extra_body")
    profile = RequestProfile(
        sampling={**below.sampling, **{k: v for k, v in sampling.items() if v is not None}},
        thinking=table.take("thinking", BOOLEAN, below.thinking),
        reasoning_effort=table.take("reasoning_effort", TEXT, below.reasoning_effort),
        extra_body={**below.extra_body, **{key: extra.take(key, _ANY) for key in extra.names}},
        headers={**below.headers, **_texts(table.table("headers"))},
        headers_env={**below.headers_env, **_env_names(table.table("headers_env"))},
        ca=_below(folder, table.take("ca", PATH)) or below.ca,
        client_cert=_below(folder, table.take("client_cert", PATH)) or below.client_cert,
        client_key=_below(folder, table.take("client_key", PATH)) or below.client_key,
        proxy=table.take("proxy", URL, below.proxy),
        system_prompt=table.take("system_prompt", TEXT, below.system_prompt),
        tools=table.take_list("tools", _TOOL) or below.tools,
    )
    table.finish()
    return profile


def _env_names(table: Table) -> dict[str, str]:
    return {header: table.take(header, ENV_NAME) for header in table.names}


def _below(folder: Path, path: Path | None) -> Path | None:
    return None if path is None else folder / path


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable("not a number")
    return value


def _read_tool(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("function"), dict):
        raise Unreadable("no function in it")
    return value


def _read_url_path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/"):
        raise Unreadable("no leading slash")
    return value


_NUMBER = Kind("a number", _read_number)
_TOOL = Kind('an OpenAI tool, {type = "function", function = {…}}', _read_tool)
_URL_PATH = Kind("a path under the server's root, like /health", _read_url_path)
_ANY = Kind("anything", lambda value: value)
