"""fidelity.toml: which deployments there are, how they start, what they promise.

Unknown keys, wrong types and secrets in the file are refused with file, line and nearest match.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fidelity.config.config_table import Lines, Table
from fidelity.config.deployment_spec import ROLES, DeploymentSpec, FromFile
from fidelity.config.keys import Section, read
from fidelity.config.kinds import nearest
from fidelity.config.options import OPTIONS
from fidelity.config.patch_spec import PatchSpec
from fidelity.config.profile import SAMPLING_KEYS, RequestProfile
from fidelity.config.read_deployment import deployment_of
from fidelity.config.read_patches import patches_of
from fidelity.config.tables import BUDGET, HARNESS, ROOT
from fidelity.config.toml_text import parse
from fidelity.errors import ConfigError
from fidelity.words import Budget

FILE_NAME = "fidelity.toml"
_PER_DEPLOYMENT = tuple(option.dest for option in OPTIONS if option.per_deployment)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """What [gate] says; None and () where it says nothing."""

    base: str | None = None
    baseline: Path | None = None
    deployment: str | None = None
    budget: Budget | None = None
    suites: tuple[str, ...] = ()
    microtest_s: int | None = None
    microtest_command: tuple[str, ...] = ()
    microtest_support: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    effect_margin: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A whole fidelity.toml, checked.

    `harness` maps option fields to values; `budgets` maps a budget's name to such a mapping.
    """

    path: Path | None = None
    default: str | None = None
    harness: Mapping[str, FromFile] = field(default_factory=dict)
    request: RequestProfile = field(default_factory=RequestProfile)
    deployments: Mapping[str, DeploymentSpec] = field(default_factory=dict)
    patches: Mapping[str, PatchSpec] = field(default_factory=dict)
    budgets: Mapping[str, Mapping[str, FromFile]] = field(default_factory=dict)
    gate: GateSpec = field(default_factory=GateSpec)

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


def read_config(
    path: Path,
    *,
    suites: Collection[str] | None = None,
    encodings: Collection[str] | None = None,
) -> ConfigFile:
    """Read and check a fidelity.toml.

    Args:
        path: of the file.
        suites: names of the product's suites, which others are held against; None knows of none,
            as of a file of another time.
        encodings: names of the chat encodings that the product has golden vectors of, likewise.

    Raises:
        ConfigError: unreadable, no TOML, unknown key, wrong type, or a secret in the file.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    text, data = parse(path, raw)
    root = read(Table(data, (), Lines.of(path, text)), ROOT)
    folder = path.parent
    request = _profile(root["request"], RequestProfile(), folder)
    patches = patches_of(root["patch"], folder)
    config = ConfigFile(
        path=path,
        default=root["default"],
        harness=_options(root["harness"], HARNESS.names),
        request=request,
        deployments={
            name: deployment_of(
                name,
                section,
                folder=folder,
                patches=patches,
                request=_profile(section["request"], request, folder),
                overrides=_options(section, _PER_DEPLOYMENT),
            )
            for name, section in root["deployments"].items()
        },
        patches=patches,
        budgets={
            _budget(root, name): _options(section, BUDGET.names)
            for name, section in root["budgets"].items()
        },
        gate=_gate(root["gate"], folder),
    )
    _check_names(root, config)
    _check_roles(root, config)
    if suites is not None:
        for section in (root["gate"], *root["patch"]):
            _check_suites(section, suites, folder)
    for section in root["deployments"].values() if encodings is not None else ():
        _check_encoding(section, encodings or ())
    return config


def _check_names(root: Section, config: ConfigFile) -> None:
    gate: Section = root["gate"]
    for section, key, name in (
        (root, "default", config.default),
        (gate, "deployment", config.gate.deployment),
    ):
        if name is not None and name not in config.deployments:
            hint = nearest(name, config.deployments)
            raise section.table.refuse(key, f"no [deployments.{name}]{hint}")
    for name in config.gate.values:
        if name not in config.patches:
            hint = nearest(name, config.patches)
            raise gate.table.refuse("values", f"no [[patch]] {name!r}{hint}")


def _check_roles(root: Section, config: ConfigFile) -> None:
    """Refuse a proof that is sought at a role which no deployment of the file has."""
    roles = {role for spec in config.deployments.values() for role in spec.roles} or {*ROLES}
    for section in root["patch"]:
        condition: Section = section["active_when"]
        role = condition["role"]
        if role and role not in roles:
            known = ", ".join(sorted(roles))
            hint = nearest(role, roles)
            raise condition.table.refuse("role", f"no role {role!r}{hint}. Known: {known}")


def _check_suites(section: Section, known: Collection[str], folder: Path) -> None:
    """Refuse a suite that is neither one of the product nor a file."""
    for text in section["suites"]:
        name = text.partition("::")[0]
        stem = name.removeprefix("test_").removesuffix(".py")
        if stem not in known and not (folder / name).exists() and not Path(name).exists():
            said = f"no suite {text!r}{nearest(stem, known)}. Known: {', '.join(known)}, or a path"
            raise section.table.refuse("suites", said)


def _check_encoding(section: Section, known: Collection[str]) -> None:
    """Refuse an encoding that has no golden vectors and is no file of them."""
    name = section["encoding"]
    if name is not None and name not in known and not name.endswith(".json"):
        said = f"no golden vectors of {name!r}{nearest(name, known)}. Known: {', '.join(known)}"
        raise section.table.refuse("encoding", f"{said}, or the path of a file of them")


def _budget(root: Section, name: str) -> str:
    if name not in tuple(Budget):
        hint = nearest(name, [str(budget) for budget in Budget])
        table = root.table.table("budgets")
        raise table.refuse(name, f"no such budget{hint}. Known: {', '.join(Budget)}")
    return name


def _gate(section: Section, folder: Path) -> GateSpec:
    return GateSpec(
        base=section["base"],
        baseline=_below(folder, section["baseline"]),
        deployment=section["deployment"],
        budget=section["budget"],
        suites=section["suites"],
        microtest_s=section["microtest_s"],
        microtest_command=section["microtest_command"],
        microtest_support=section["microtest_support"],
        shared=section["shared"],
        watch=section["watch"],
        values=section["values"],
        effect_margin=section["effect_margin"],
    )


def _options(section: Section, names: Collection[str]) -> dict[str, FromFile]:
    """Return the options of these names that a table sets, with their lines."""
    return {
        name: FromFile(section[name], section.table.where(name))
        for name in names
        if section.has(name)
    }


def _profile(section: Section, below: RequestProfile, folder: Path) -> RequestProfile:
    """Return [request] on top of `below`; mappings are merged, single values replaced."""
    sampling = {key: section[key] for key in SAMPLING_KEYS if section[key] is not None}
    return RequestProfile(
        sampling={**below.sampling, **sampling},
        thinking=section["thinking"] if section.has("thinking") else below.thinking,
        reasoning_effort=section["reasoning_effort"] or below.reasoning_effort,
        extra_body={**below.extra_body, **section["extra_body"]},
        headers={**below.headers, **section["headers"]},
        headers_env={**below.headers_env, **section["headers_env"]},
        ca=_below(folder, section["ca"]) or below.ca,
        client_cert=_below(folder, section["client_cert"]) or below.client_cert,
        client_key=_below(folder, section["client_key"]) or below.client_key,
        proxy=section["proxy"] or below.proxy,
        system_prompt=section["system_prompt"] or below.system_prompt,
        tools=section["tools"] or below.tools,
    )


def _below(folder: Path, path: Path | None) -> Path | None:
    return None if path is None else folder / path
