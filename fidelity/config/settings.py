"""Settings of a run: flag > environment > deployment > [harness] > default, each with its origin.

The only module of the repository that reads the environment. What cannot be read is refused.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fidelity.config.config_file import FILE_NAME, ConfigFile, find_config, read_config
from fidelity.config.deployment_spec import GIVEN_URL, DeploymentSpec
from fidelity.config.kinds import nearest
from fidelity.config.options import BY_DEST, OPTIONS, Option
from fidelity.config.redaction import SHORTEST_BY_NAME, Redactor, is_secret_name, secret_values
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
    _refuse_misspelled(env)
    file = _config_file(flags, env, cwd or Path.cwd())
    target, target_origin = _target(flags, env, file)
    values: dict[str, Any] = {}
    origins: list[Setting] = [Setting(name="target", value=target.name, origin=target_origin)]
    for option in OPTIONS:
        value, origin = _resolve_one(option, flags, env, target, file, values.get("budget"))
        if option.refused and value:
            raise ConfigError(
                f"{option.name} ({origin}): only microtests (fidelity micro) take it;"
                f" {option.refused}"
            )
        values[option.dest] = value
        origins.append(Setting(name=option.dest, value=_shown(value), origin=origin))
    values["allow"] = tuple(dict.fromkeys((Traffic.PASSIVE, *values["allow"])))
    key_env, key_origin = _key_env(values["api_key_env"], target, env)
    if key_origin:
        origins = [_replace(o, "api_key_env", key_env, key_origin) for o in origins]
    values["api_key_env"] = key_env
    golden = _golden(values["golden"], flags, env, file)
    settings = _settings(values, origins, env, file, target, secrets=_secrets_of(golden))
    return replace(settings, beside=replace(settings, **golden)) if golden else settings


_ITS_OWN = frozenset({"model", "dialect", "dtype", "api_key_env"})
"""Options that say what a server is: flags mean the deployment that is measured."""


def _golden(
    name: str | None, flags: Mapping[str, object], env: Mapping[str, str], file: ConfigFile
) -> dict[str, Any]:
    """Return how the golden deployment's settings differ from the run's; {} without one.

    It gets no key that was meant for another server: only one that fidelity.toml names for it.
    """
    if not name:
        return {}
    if "://" in name:
        spec = _given_url(_read(BY_DEST["base_url"], name, "golden"), file)
    else:
        spec = file.deployment(name)
    values: dict[str, Any] = {
        option.dest: (None if option.dest in _ITS_OWN else _from_flag_or_env(option, flags, env))
        or _from_file(option, spec, file)
        for option in OPTIONS
        if option.per_deployment
    }
    values = {dest: value for dest, (value, _) in values.items()}
    key_env = values["api_key_env"]
    return values | {
        "base_url": spec.base_url,
        "deployment": None if spec.name == GIVEN_URL else spec.name,
        "golden": None,
        "target": spec,
        "allow": (Traffic.PASSIVE,),
        "launch_arg": (),
        "api_key": _variable(key_env, env, "the golden's API key") if key_env else None,
        "headers_from_env": {
            header: _variable(variable, env, f"header {header}")
            for header, variable in spec.request.headers_env.items()
        },
    }


def _secrets_of(golden: Mapping[str, Any]) -> list[str]:
    key = golden.get("api_key")
    return [*golden.get("headers_from_env", {}).values(), *([key] if key else [])]


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
    _refuse_misspelled(env)
    values: dict[str, Any] = {}
    origins: list[Setting] = []
    for dest in sorted(MICROTEST_FIELDS):
        option = BY_DEST[dest]
        given = _from_flag_or_env(option, flags, env)
        values[dest], origin = given or (option.default, "default")
        if dest == "device":
            values[dest] = values[dest] or "cpu"
        origins.append(Setting(name=dest, value=_shown(values[dest]), origin=origin))
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
    _refuse_misspelled(env)
    run_dir = _from_flag_or_env(BY_DEST["run_dir"], flags, env)
    summary = env.get("GITHUB_STEP_SUMMARY")
    return GateSettings(
        file=_config_file(flags, env, cwd or Path.cwd()),
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
        header: _variable(name, env, f"header {header}")
        for header, name in target.request.headers_env.items()
    }
    key_env = values["api_key_env"]
    api_key = _variable(key_env, env, "the API key") if key_env else None
    # every variable with a secret's name, since a launched server inherits and may print them
    secrets = [
        *secrets,
        *(
            value
            for name, value in env.items()
            if is_secret_name(name) and len(value) >= SHORTEST_BY_NAME
        ),
    ]
    secrets += [*headers.values(), *([api_key] if api_key else [])]
    redactor = Redactor([*secrets, *secret_values(values["launch_arg"])])
    shown = redactor.arguments(values["launch_arg"])
    origins = [
        Setting(
            name=o.name,
            value=_shown(shown) if o.name == "launch_arg" else redactor.text(o.value),
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


def _refuse_misspelled(env: Mapping[str, str]) -> None:
    known = [option.env for option in OPTIONS]
    for name in env:
        if name.startswith("FIDELITY_") and name not in known and (hint := nearest(name, known)):
            raise ConfigError(f"unknown environment variable {name}{hint}")


def _config_file(flags: Mapping[str, object], env: Mapping[str, str], cwd: Path) -> ConfigFile:
    option = BY_DEST["config"]
    given = _from_flag_or_env(option, flags, env)
    path = cwd / given[0] if given else find_config(cwd)
    return read_config(path) if path else ConfigFile()


def _target(
    flags: Mapping[str, object], env: Mapping[str, str], file: ConfigFile
) -> tuple[DeploymentSpec, str]:
    """Return what to measure and who chose it: the first source that names a URL or a name."""
    for source, origin in ((flags, "flag"), (env, "environment")):
        empty: Mapping[str, Any] = {}
        chosen = {
            dest: _from_flag_or_env(
                BY_DEST[dest], *((source, empty) if origin == "flag" else (empty, source))
            )
            for dest in ("base_url", "deployment")
        }
        if chosen["base_url"] and chosen["deployment"]:
            raise ConfigError(
                f"both a base URL ({chosen['base_url'][0]}) and a deployment"
                f" ({chosen['deployment'][0]}) are given by {origin}: give one of them"
            )
        if url := chosen["base_url"]:
            return _given_url(url[0], file), url[1]
        if name := chosen["deployment"]:
            return file.deployment(name[0]), name[1]
    if openai := env.get("OPENAI_BASE_URL"):
        option = BY_DEST["base_url"]
        url_text = _read(option, openai, "environment OPENAI_BASE_URL")
        return _given_url(url_text, file), "environment OPENAI_BASE_URL"
    if file.default:
        return file.deployment(file.default), f"file {file.path} default"
    raise ConfigError(
        "nothing to measure: pass --fidelity-base-url URL/v1 (or --base-url), set"
        f" FIDELITY_BASE_URL, or name a default deployment in {FILE_NAME}"
    )


def _given_url(url: str, file: ConfigFile) -> DeploymentSpec:
    return DeploymentSpec(name=GIVEN_URL, base_url=url, request=file.request)


def _resolve_one(
    option: Option,
    flags: Mapping[str, object],
    env: Mapping[str, str],
    target: DeploymentSpec,
    file: ConfigFile,
    budget: Budget | None,
) -> tuple[Any, str]:
    chosen = {
        "base_url": target.base_url,
        "deployment": None if target.name == GIVEN_URL else target.name,
    }
    if option.dest in chosen:
        return chosen[option.dest], "target"
    if option.dest == "config" and file.path:
        return file.path, "flag --config" if flags.get("config") else "discovered"
    if given := _from_flag_or_env(option, flags, env):
        return given
    return _from_file(option, target, file, budget)


def _from_file(
    option: Option, target: DeploymentSpec, file: ConfigFile, budget: Budget | None = None
) -> tuple[Any, str]:
    found = target.overrides.get(option.dest)
    if found is None and budget is not None:
        found = file.budgets.get(budget, {}).get(option.dest)
    if found is None and not _unsafe_for_url(option, target):
        found = file.harness.get(option.dest)
    return (option.default, "default") if found is None else (found.value, f"file {found.where}")


def _unsafe_for_url(option: Option, target: DeploymentSpec) -> bool:
    """Tell whether a file-wide value must not reach a server that is only given by URL."""
    return option.dest == "allow" and target.name == GIVEN_URL


def _from_flag_or_env(
    option: Option, flags: Mapping[str, object], env: Mapping[str, str]
) -> tuple[Any, str] | None:
    raw = flags.get(option.dest)
    if raw is not None and raw is not False:
        origin = f"flag --{option.name}"
        if option.split:
            texts = raw if isinstance(raw, list | tuple) else [raw]
            parts = [part for text in texts for part in _flag_parts(option, str(text))]
            return tuple(_read(option, part, origin) for part in parts), origin
        return _read(option, raw, origin), origin
    text = env.get(option.env)
    if text is None or text == "":
        return None
    origin = f"environment {option.env}"
    if option.split:
        return tuple(_read(option, part, origin) for part in option.split(text)), origin
    if option.switch:
        return text.lower() not in {"0", "false", "no"}, origin
    return _read(option, text, origin), origin


def _flag_parts(option: Option, text: str) -> list[str]:
    """Split a comma list; one --launch-arg or --patch is one word as it stands."""
    by_commas = option.dest in {"allow", "replica_header"}
    return option.split(text) if by_commas and option.split else [text]


def _read(option: Option, raw: object, origin: str) -> Any:
    try:
        return option.kind.read(raw)
    except ValueError as error:
        seen = repr(raw)
        if option.dest == "api_key_env" or len(seen) > 80:  # it may be the key itself
            seen = f"something else ({len(str(raw))} characters)"
        raise ConfigError(
            f"{origin}: expected {option.kind.accepted}, found {seen} ({error})"
        ) from None


def _key_env(
    named: str | None, target: DeploymentSpec, env: Mapping[str, str]
) -> tuple[str | None, str]:
    """Return the variable that holds the key; OPENAI_API_KEY only for a URL that was given."""
    if named is None and target.name == GIVEN_URL and env.get("OPENAI_API_KEY"):
        return "OPENAI_API_KEY", "environment OPENAI_API_KEY"
    return named, ""


def _variable(name: str, env: Mapping[str, str], purpose: str) -> str:
    value = env.get(name, "").strip()
    if not value:
        raise ConfigError(f"{purpose} is to come from {name}, which is not set: export {name}")
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{name} ({purpose}) holds characters that no HTTP header can carry")
    return value


def _replace(setting: Setting, name: str, value: str | None, origin: str) -> Setting:
    return (
        Setting(name=name, value=_shown(value), origin=origin) if setting.name == name else setting
    )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value)
    return str(value)


MICROTEST_FIELDS = frozenset(field_.name for field_ in fields(MicrotestSettings)) - {"settings"}
"""What `fidelity micro` takes."""
SETTING_FIELDS = frozenset(field_.name for field_ in fields(Settings))
"""Names of all fields; a test holds the table of options against them."""
