"""Which deployment a run measures, and which one beside it is its golden."""

from collections.abc import Mapping
from typing import Any

from fidelity.config.config_file import FILE_NAME, ConfigFile
from fidelity.config.deployment_spec import GIVEN_URL, DeploymentSpec
from fidelity.config.options import BY_DEST, OPTIONS
from fidelity.config.redaction import secret_references
from fidelity.config.sources import from_file, from_flag_or_env, read_as, variable
from fidelity.errors import ConfigError
from fidelity.words import Traffic

_ITS_OWN = frozenset({"model", "dialect", "dtype", "api_key_env"})
"""Options that say what a server is: flags mean the deployment that is measured."""


def target_of(
    flags: Mapping[str, object], env: Mapping[str, str], file: ConfigFile
) -> tuple[DeploymentSpec, str]:
    """Return what to measure and who chose it: the first source that names a URL or a name.

    Raises:
        ConfigError: a source names both, or none names any.
    """
    for source, origin in ((flags, "flag"), (env, "environment")):
        empty: Mapping[str, Any] = {}
        chosen = {
            dest: from_flag_or_env(
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
        url_text = read_as(option, openai, "environment OPENAI_BASE_URL")
        return _given_url(url_text, file), "environment OPENAI_BASE_URL"
    if file.default:
        return file.deployment(file.default), f"file {file.path} default"
    raise ConfigError(
        "nothing to measure: pass --fidelity-base-url URL/v1 (or --base-url), set"
        f" FIDELITY_BASE_URL, or name a default deployment in {FILE_NAME}"
    )


def _given_url(url: str, file: ConfigFile) -> DeploymentSpec:
    return DeploymentSpec(name=GIVEN_URL, base_url=url, request=file.request)


def golden_of(
    name: str | None, flags: Mapping[str, object], env: Mapping[str, str], file: ConfigFile
) -> dict[str, Any]:
    """Return how the golden deployment's settings differ from the run's; {} without one.

    It gets no key that was meant for another server: only one that fidelity.toml names for it.

    Raises:
        ConfigError: a value cannot be read, or a variable that it names is not set.
    """
    if not name:
        return {}
    if "://" in name:
        spec = _given_url(read_as(BY_DEST["base_url"], name, "golden"), file)
    else:
        spec = file.deployment(name)
    values: dict[str, Any] = {
        option.dest: (None if option.dest in _ITS_OWN else from_flag_or_env(option, flags, env))
        or from_file(option, spec, file)
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
        "api_key": variable(key_env, env, "the golden's API key") if key_env else None,
        "headers_from_env": {
            header: variable(key, env, f"header {header}")
            for header, key in spec.request.headers_env.items()
        },
    }


def secrets_of(golden: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    """Return what must not be shown of the golden's settings, as `golden_of` returned them."""
    key, target = golden.get("api_key"), golden.get("target")
    commands = target.commands if target is not None else []
    inherited = [env.get(name, "") for words in commands for name in secret_references(words)]
    return [*golden.get("headers_from_env", {}).values(), *inherited, *([key] if key else [])]
