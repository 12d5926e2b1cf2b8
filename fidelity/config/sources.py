"""Where the value of one option stands: in a flag, in the environment, in fidelity.toml.

Reads no environment of its own; the mapping is handed in. What cannot be read is refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fidelity.config.config_file import ConfigFile, find_config, read_config
from fidelity.config.deployment_spec import GIVEN_URL, DeploymentSpec
from fidelity.config.kinds import nearest
from fidelity.config.options import BY_DEST, OPTIONS, Option
from fidelity.errors import ConfigError
from fidelity.words import Budget

_SUITES = Path(__file__).resolve().parents[2] / "suites"


def refuse_misspelled(env: Mapping[str, str]) -> None:
    """Refuse a variable that is almost one of ours; it would be ignored in silence."""
    known = [option.env for option in OPTIONS]
    for name in env:
        if name.startswith("FIDELITY_") and name not in known and (hint := nearest(name, known)):
            raise ConfigError(f"unknown environment variable {name}{hint}")


def value_of(
    option: Option,
    flags: Mapping[str, object],
    env: Mapping[str, str],
    target: DeploymentSpec,
    file: ConfigFile,
    budget: Budget | None,
) -> tuple[Any, str]:
    """Return the value of one option and where it stands: flag > environment > file > default."""
    chosen = {
        "base_url": target.base_url,
        "deployment": None if target.name == GIVEN_URL else target.name,
    }
    if option.dest in chosen:
        return chosen[option.dest], "target"
    if option.dest == "config" and file.path:
        return file.path, "flag --config" if flags.get("config") else "discovered"
    if given := from_flag_or_env(option, flags, env):
        return given
    return from_file(option, target, file, budget)


def config_file(flags: Mapping[str, object], env: Mapping[str, str], cwd: Path) -> ConfigFile:
    """Return the fidelity.toml that is named or found above `cwd`; an empty one without any."""
    option = BY_DEST["config"]
    given = from_flag_or_env(option, flags, env)
    path = cwd / given[0] if given else find_config(cwd)
    if path is None:
        return ConfigFile()
    return read_config(path, suites=suites_of_the_product(), encodings=_encodings())


def suites_of_the_product() -> tuple[str, ...] | None:
    """Return the names of the suites that came with this package; None where none did."""
    return tuple(sorted(p.stem.removeprefix("test_") for p in _SUITES.glob("test_*.py"))) or None


def _encodings() -> tuple[str, ...] | None:
    found = (_SUITES / "data").glob("encoding_*.json")
    return tuple(sorted(p.stem.removeprefix("encoding_") for p in found)) or None


def from_flag_or_env(
    option: Option, flags: Mapping[str, object], env: Mapping[str, str]
) -> tuple[Any, str] | None:
    """Return what a flag or else the environment says, with its origin; None: neither."""
    raw = flags.get(option.dest)
    if raw is not None and raw is not False:
        origin = f"flag --{option.name}"
        if option.split:
            texts = raw if isinstance(raw, list | tuple) else [raw]
            parts = [part for text in texts for part in _flag_parts(option, str(text))]
            return tuple(read_as(option, part, origin) for part in parts), origin
        return read_as(option, raw, origin), origin
    text = env.get(option.env)
    if text is None or text == "":
        return None
    origin = f"environment {option.env}"
    if option.split:
        return tuple(read_as(option, part, origin) for part in option.split(text)), origin
    if option.switch:
        return text.lower() not in {"0", "false", "no"}, origin
    return read_as(option, text, origin), origin


def _flag_parts(option: Option, text: str) -> list[str]:
    """Split a comma list; one --launch-arg or --patch is one word as it stands."""
    by_commas = option.dest in {"allow", "replica_header"}
    return option.split(text) if by_commas and option.split else [text]


def read_as(option: Option, raw: object, origin: str) -> Any:
    """Return a value of the option's kind.

    Raises:
        ConfigError: it is none; names where it stands, and never shows what may be a key.
    """
    try:
        return option.kind.read(raw)
    except ValueError as error:
        raise ConfigError(
            f"{origin}: expected {option.kind.accepted}, found {option.kind.show(raw)} ({error})"
        ) from None


def from_file(
    option: Option, target: DeploymentSpec, file: ConfigFile, budget: Budget | None = None
) -> tuple[Any, str]:
    """Return what the deployment, budget or [harness] says, else the default, with its origin."""
    found = target.overrides.get(option.dest)
    if found is None and budget is not None:
        found = file.budgets.get(budget, {}).get(option.dest)
    if found is None and not _unsafe_for_url(option, target):
        found = file.harness.get(option.dest)
    return (option.default, "default") if found is None else (found.value, f"file {found.where}")


def _unsafe_for_url(option: Option, target: DeploymentSpec) -> bool:
    """Tell whether a file-wide value must not reach a server that is only given by URL."""
    return option.dest == "allow" and target.name == GIVEN_URL


def variable(name: str, env: Mapping[str, str], purpose: str) -> str:
    """Return the value of a variable that the user named.

    Raises:
        ConfigError: it is not set, or no HTTP header can carry it.
    """
    value = env.get(name, "").strip()
    if not value:
        raise ConfigError(f"{purpose} is to come from {name}, which is not set: export {name}")
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{name} ({purpose}) holds characters that no HTTP header can carry")
    return value


def shown(value: Any) -> str:
    """Return a value as text, for the manifest."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value)
    return str(value)
