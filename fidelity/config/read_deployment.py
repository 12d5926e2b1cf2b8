"""Makes one [deployments.NAME] into a spec, and refuses what cannot be started or reached."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fidelity.config.deployment_spec import (
    ROLES,
    ROUTER,
    DeploymentSpec,
    FromFile,
    ServerSpec,
)
from fidelity.config.keys import Section
from fidelity.config.kinds import nearest
from fidelity.config.patch_spec import PatchSpec, split_value, with_patches
from fidelity.config.placeholders import check_placeholders, placeholders_of
from fidelity.config.profile import RequestProfile

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_ROLE = re.compile(rf"({'|'.join(ROLES)})(-[1-9][0-9]{{0,2}})?\Z")

Patches = Mapping[str, PatchSpec]
_Spec = TypeVar("_Spec", bound=ServerSpec)


def deployment_of(
    name: str,
    section: Section,
    *,
    folder: Path,
    patches: Patches,
    request: RequestProfile,
    overrides: Mapping[str, FromFile],
) -> DeploymentSpec:
    """Return the spec of one deployment.

    Raises:
        ConfigError: names file, line and key.
    """
    if not _NAME.match(name):
        raise section.table.refuse(
            name, "a deployment's name is letters, digits, dot, dash, underscore"
        )
    roles: Mapping[str, Section] = section["roles"]
    fields = _server_fields(section, folder)
    spec = DeploymentSpec(
        name=name,
        base_url=section["base_url"],
        roles={
            role: _role(name, role, part, section, folder=folder, patches=patches, known=roles)
            for role, part in roles.items()
        },
        expects=section["expects"],
        required=section["required"],
        reasoning=section["reasoning"],
        encoding=section["encoding"],
        request=request,
        overrides=overrides,
        **fields,
    )
    if not roles:
        _check_server(section, spec, url_key="base_url", roles={})
        return _toggled(section, spec, patches)
    if spec.launch or spec.base_url:
        key = "launch" if spec.launch else "base_url"
        raise section.table.refuse(key, "a deployment with roles has none: each role has its own")
    if ROUTER not in roles:
        raise section.table.refuse(
            "roles", f"no {ROUTER} among them: its address is what the suites ask"
        )
    return spec


def _role(
    deployment: str,
    role: str,
    section: Section,
    parent: Section,
    *,
    folder: Path,
    patches: Patches,
    known: Mapping[str, Section],
) -> ServerSpec:
    if not _ROLE.match(role):
        raise section.table.refuse(
            "",
            f"{role!r} is no role{nearest(role, ROLES)}. Known: {', '.join(ROLES)}, numbered where"
            " there are several: decode-2",
        )
    fields = _server_fields(section, folder)
    fields["env"] = {**parent["env"], **fields["env"]}
    for key in ("readiness_path", "readiness_timeout_s", "teardown_signal", "teardown_grace_s"):
        if not section.has(key):
            fields[key] = parent[key]
    if fields["patches"] is None and parent.has("patches"):
        fields["patches"] = parent["patches"]
    spec = ServerSpec(name=f"{deployment}/{role}", base_url=section["url"], **fields)
    _check_server(section, spec, url_key="url", roles=known)
    return _toggled(section, spec, patches)


def _server_fields(section: Section, folder: Path) -> dict[str, Any]:
    log = section["log"]
    return {
        "launch": section["launch"],
        "cwd": folder.resolve(),
        "env": section["env"],
        "readiness_path": section["readiness_path"],
        "readiness_timeout_s": section["readiness_timeout_s"],
        "teardown": section["teardown"],
        "teardown_signal": section["teardown_signal"],
        "teardown_grace_s": section["teardown_grace_s"],
        "restart": section["restart"],
        "log": None if log is None else folder / log,
        "host": section["host"] or "",
        "manual": section["manual"],
        "patches": section["patches"] if section.has("patches") else None,
    }


def _check_server(
    section: Section, spec: ServerSpec, *, url_key: str, roles: Mapping[str, Section]
) -> None:
    table = section.table
    if not spec.launch and not spec.base_url:
        raise table.refuse(url_key, f"it has either a launch command or a {url_key}")
    if spec.manual and not spec.base_url:
        raise table.refuse("manual", f"a server that a person starts needs a {url_key}")
    if spec.manual and spec.launch:
        raise table.refuse("manual", "a server with a launch command is started by the run")
    if spec.teardown and not spec.launch:
        raise table.refuse("teardown", "only a server with a launch command is ended by the run")
    if spec.launch and spec.restart:
        raise table.refuse("restart", "a server with a launch command is launched again")
    _check_placeholders(section, spec, roles)
    takes_port = any("{port}" in text for text in (*spec.launch, *spec.env.values()))
    if spec.launch and not spec.base_url and not takes_port:
        raise table.refuse(
            "launch", f"the command must take the chosen port as {{port}}, or {url_key} says where"
        )
    if spec.launch and spec.base_url and takes_port:
        raise table.refuse(
            url_key, "the command takes {port}, so it has either a launch command or a " + url_key
        )


def _check_placeholders(section: Section, spec: ServerSpec, roles: Mapping[str, Section]) -> None:
    texts = [("launch", word) for word in spec.launch]
    texts += [("teardown", word) for word in spec.teardown]
    texts += [("restart", word) for word in spec.restart]
    texts += [("env", word) for word in spec.env.values()]
    check_placeholders(section, texts, placeholders_of(roles))


def _toggled(section: Section, spec: _Spec, patches: Patches) -> _Spec:
    """Return the spec with its patches switched; nothing is switched where none are named."""
    if spec.patches is None:
        return spec
    names = [split_value(text)[0] for text in spec.patches]
    for name, text in zip(names, spec.patches, strict=True):
        patch = patches.get(name)
        if patch is None:
            known = ", ".join(patches) or "none"
            raise section.table.refuse(
                "patches", f"no [[patch]] {name!r}{nearest(name, patches)}. Known: {known}"
            )
        if spec.launch and not (patch.can_toggle or patch.unconditional):
            raise section.table.refuse(
                "patches", f"{name} has no toggle in its [[patch]] (on, off), nor `unconditional`"
            )
        if names.count(name) > 1:
            raise section.table.refuse("patches", f"{name} stands in it twice")
        if spec.launch and patch.on.takes_value and not split_value(text)[1]:
            raise section.table.refuse("patches", f"{name} takes a value: write {name}=VALUE")
    return with_patches(spec, spec.patches, patches) if spec.launch else spec
