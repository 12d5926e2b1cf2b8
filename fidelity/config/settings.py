"""Settings of a run: flag > environment > deployment > [harness] > default, each with its origin.

The only module of the repository that reads the environment. What cannot be read is refused.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fidelity.config.chosen import golden_of, secrets_of, target_of
from fidelity.config.config_file import ConfigFile
from fidelity.config.deployment_spec import GIVEN_URL, DeploymentSpec
from fidelity.config.options import BY_DEST, OPTIONS
from fidelity.config.redaction import (
    Redactor,
    environment_secrets,
    secret_references,
    secret_values,
)
from fidelity.config.sources import (
    config_file,
    from_flag_or_env,
    refuse_misspelled,
    shown,
    value_of,
    variable,
)
from fidelity.errors import ConfigError
from fidelity.records import Setting
from fidelity.words import Budget, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one run, resolved. Fields named as in `options.OPTIONS`, then the target.

    `environ` is what a launched server inherits; it is never stored or printed.
    """

    base_url: str | None
    model: str | None
    deployment: str | None
    config: Path | None
    budget: Budget
    run_dir: Path | None
    resume: bool
    golden: str | None
    dtype: str | None
    patch: tuple[str, ...]
    checkpoint: Path | None
    inputs: Path | None
    launch_arg: tuple[str, ...]
    seed: int
    device: str | None
    allow: tuple[Traffic, ...]
    api_key_env: str | None
    dialect: str | None
    concurrency: int
    load_concurrency: int
    max_requests: int
    max_tokens: int | None
    max_wait_s: float
    max_time_s: float | None
    timeout_s: float
    replica_header: tuple[str, ...]

    target: DeploymentSpec
    """The deployment to measure."""
    beside: "Settings | None" = None
    """By which the golden deployment is opened: the same caps, passive traffic, its own key."""
    file: ConfigFile
    settings: tuple[Setting, ...]
    """Every setting with its value as text and its origin, for the manifest."""
    no_color: bool
    ci: bool
    step_summary: Path | None
    """File that a CI system offers for a Markdown summary."""
    redactor: Redactor
    headers_from_env: Mapping[str, str] = field(repr=False)
    api_key: str | None = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)

    @property
    def measured(self) -> str:
        """Return the first line that a run prints: what is measured, and who chose it."""
        chosen = {setting.name: setting.origin for setting in self.settings}["target"]
        where = self.target.base_url or "launched: " + " ".join(self.target.launch)
        if self.target.roles:
            where = "roles: " + ", ".join(self.target.roles)
        return f"measuring deployment {self.target.name!r} ({where}), chosen by {chosen}"


def resolve(
    flags: Mapping[str, object],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Settings:
    """Resolve every setting from raw flags, the environment and fidelity.toml.

    Args:
        flags: raw values by field name, as `options.pytest_flags` or `cli_flags` return them.
        environ: for tests; the process's own environment otherwise.
        cwd: for tests; where the search for fidelity.toml starts.

    Raises:
        ConfigError: a value cannot be read, two settings contradict each other, a named variable
            is empty, or nothing says what to measure.
    """
    env = dict(os.environ if environ is None else environ)  # noqa: TID251 - the one reader
    refuse_misspelled(env)
    file = config_file(flags, env, cwd or Path.cwd())
    target, target_origin = target_of(flags, env, file)
    values: dict[str, Any] = {}
    origins: list[Setting] = [Setting(name="target", value=target.name, origin=target_origin)]
    for option in OPTIONS:
        value, origin = value_of(option, flags, env, target, file, values.get("budget"))
        if option.refused and value:
            raise ConfigError(
                f"{option.name} ({origin}): only microtests (fidelity micro) take it;"
                f" {option.refused}"
            )
        values[option.dest] = value
        origins.append(Setting(name=option.dest, value=shown(value), origin=origin))
    values["allow"] = tuple(dict.fromkeys((Traffic.PASSIVE, *values["allow"])))
    key_env, key_origin = _key_env(values["api_key_env"], target, env)
    if key_origin:
        origins = [_replace(o, "api_key_env", key_env, key_origin) for o in origins]
    values["api_key_env"] = key_env
    golden = golden_of(values["golden"], flags, env, file)
    settings = _settings(values, origins, env, file, target, secrets=secrets_of(golden, env))
    return replace(settings, beside=replace(settings, **golden)) if golden else settings


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrotestSettings:
    """What the microtests of patches are told; they measure no deployment."""

    patch: tuple[str, ...]
    """NAME or NAME=VALUE; empty: every patch."""
    checkpoint: Path | None
    inputs: Path | None
    device: str
    seed: int
    run_dir: Path | None
    settings: tuple[Setting, ...] = ()
    """The above as texts, each with its origin."""


def resolve_microtests(
    flags: Mapping[str, object], *, environ: Mapping[str, str] | None = None
) -> MicrotestSettings:
    """Resolve what the microtests are told: flag, then environment, then default.

    Raises:
        ConfigError: a value cannot be read.
    """
    env = dict(os.environ if environ is None else environ)  # noqa: TID251 - the one reader
    refuse_misspelled(env)
    values: dict[str, Any] = {}
    origins: list[Setting] = []
    for dest in sorted(MICROTEST_FIELDS):
        option = BY_DEST[dest]
        given = from_flag_or_env(option, flags, env)
        values[dest], origin = given or (option.default, "default")
        if dest == "device":
            values[dest] = values[dest] or "cpu"
        origins.append(Setting(name=dest, value=shown(values[dest]), origin=origin))
    return MicrotestSettings(**values, settings=tuple(origins))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """What the gate is told; what it measures is chosen later, and only if a patch changed.

    `environ` is what its suites inherit; it is never stored or printed.
    """

    file: ConfigFile
    run_dir: Path | None
    step_summary: Path | None
    environ: Mapping[str, str] = field(repr=False)


def resolve_gate(
    flags: Mapping[str, object],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> GateSettings:
    """Resolve what the gate is told: flag, then environment, then fidelity.toml.

    Raises:
        ConfigError: a value cannot be read.
    """
    env = dict(os.environ if environ is None else environ)  # noqa: TID251 - the one reader
    refuse_misspelled(env)
    run_dir = from_flag_or_env(BY_DEST["run_dir"], flags, env)
    summary = env.get("GITHUB_STEP_SUMMARY")
    return GateSettings(
        file=config_file(flags, env, cwd or Path.cwd()),
        run_dir=run_dir[0] if run_dir else None,
        step_summary=Path(summary) if summary else None,
        environ=env,
    )


def _settings(
    values: dict[str, Any],
    origins: list[Setting],
    env: Mapping[str, str],
    file: ConfigFile,
    target: DeploymentSpec,
    *,
    secrets: list[str],
) -> Settings:
    headers = {
        header: variable(name, env, f"header {header}")
        for header, name in target.request.headers_env.items()
    }
    key_env = values["api_key_env"]
    api_key = variable(key_env, env, "the API key") if key_env else None
    secrets = [*secrets, *environment_secrets(env), *headers.values()]
    secrets += [api_key] if api_key else []
    named = [values["launch_arg"], *target.commands]
    secrets += [value for words in named for value in secret_values(words)]
    secrets += [env.get(name, "") for words in named for name in secret_references(words)]
    redactor = Redactor(secrets)
    launch_arg = shown(redactor.arguments(values["launch_arg"]))
    origins = [
        Setting(
            name=o.name,
            value=launch_arg if o.name == "launch_arg" else redactor.text(o.value),
            origin=o.origin,
        )
        for o in origins
    ]
    summary = env.get("GITHUB_STEP_SUMMARY")
    return Settings(
        **values,
        target=target,
        file=file,
        settings=tuple(origins),
        no_color=bool(env.get("NO_COLOR")),
        ci=bool(env.get("CI")),
        step_summary=Path(summary) if summary else None,
        redactor=redactor,
        headers_from_env=headers,
        api_key=api_key,
        environ=env,
    )


def _key_env(
    named: str | None, target: DeploymentSpec, env: Mapping[str, str]
) -> tuple[str | None, str]:
    """Return the variable that holds the key; OPENAI_API_KEY only for a URL that was given."""
    if named is None and target.name == GIVEN_URL and env.get("OPENAI_API_KEY"):
        return "OPENAI_API_KEY", "environment OPENAI_API_KEY"
    return named, ""


def _replace(setting: Setting, name: str, value: str | None, origin: str) -> Setting:
    return (
        Setting(name=name, value=shown(value), origin=origin) if setting.name == name else setting
    )


MICROTEST_FIELDS = frozenset(field_.name for field_ in fields(MicrotestSettings)) - {"settings"}
"""What `fidelity micro` takes."""
SETTING_FIELDS = frozenset(field_.name for field_ in fields(Settings))
"""Names of all fields; a test holds the table of options against them."""
