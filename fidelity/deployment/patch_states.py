"""Which patches are live: what servers report of them, and what `active_when` proves.

A flag's name does not say which path runs, so a patch counts as on only by what was seen.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fidelity.config.deployment_spec import GIVEN_URL, ROUTER
from fidelity.config.patch_spec import PatchSpec, split_value
from fidelity.deployment.conditions import OFF, ON, UNKNOWN, Seen, proof_of
from fidelity.deployment.servers import log_name
from fidelity.errors import CapabilityMissing, EndpointError, TrafficRefused
from fidelity.records import PatchState

if TYPE_CHECKING:
    from fidelity.deployment.deployment import Deployment


async def patch_states(
    deployment: "Deployment", declared: Mapping[str, PatchSpec] | None = None
) -> list[PatchState]:
    """Return the patches of a deployment as they are now.

    Args:
        deployment: open.
        declared: [[patch]] entries by name; they say nothing of a server that is only a URL.
    """
    servers: dict[str, Deployment] = {"": deployment, **getattr(deployment, "roles", {})}
    seen = {role: await _look(role, server) for role, server in servers.items()}
    states: dict[str, PatchState] = {}
    for role, found in seen.items():
        for name, entry in found.patches.items():
            state = _reported(name, entry, role)
            if name not in states or state.calls:
                states[name] = state
        if "patches" in found.trouble and not role and _has_patches(deployment):
            states["(all)"] = PatchState(
                name="(all)", state=UNKNOWN, detail=found.trouble["patches"][:500]
            )
    if declared and deployment.name != GIVEN_URL:
        for name, patch in declared.items():
            judged = _declared(patch, deployment, seen, states.get(name))
            if judged is not None:
                states[name] = judged
    return list(states.values())


def broken_promises(deployment: "Deployment", states: Sequence[PatchState]) -> list[str]:
    """Return patches that the deployment has on by its description, and that are seen to be off."""
    spec = getattr(deployment, "spec", None)
    if spec is None:
        return []
    promised = {
        split_value(text)[0]
        for server in (spec, *spec.roles.values())
        for text in server.patches or ()
    }
    return [f"patch {s.name}" for s in states if s.name in promised and s.state == OFF]


def _has_patches(deployment: "Deployment") -> bool:
    state = deployment.capabilities.get("patches")
    return state is not None and state.present


async def _look(role: str, server: "Deployment") -> Seen:
    """Ask one server for all that conditions may name; what it refuses is remembered."""
    seen = Seen()
    if _has_patches(server):
        try:
            reported = await server.client.patches()
            seen.patches = {str(entry.get("name", ""))[:200]: entry for entry in reported[:1_000]}
        except (EndpointError, TrafficRefused, CapabilityMissing) as error:
            seen.trouble["patches"] = str(error)
    else:
        seen.trouble["patches"] = "it has no list of patches"
    client = server.client
    if getattr(client, "server", None) is None:
        return seen  # not a server that is reached over HTTP
    for name, present in (
        ("info", client.server.has_server_info),
        ("metrics", client.server.has_metrics),
    ):
        if not present:
            seen.trouble[name] = f"it has no {'server info' if name == 'info' else name}"
            continue
        try:
            if name == "info":
                seen.info = await client.server_info()
            else:
                seen.metrics = await client.metrics()
        except (EndpointError, TrafficRefused) as error:
            seen.trouble[name] = str(error)
    _look_at_logs(seen, server, role)
    return seen


def _look_at_logs(seen: Seen, server: "Deployment", role: str) -> None:
    spec = server.spec.front if not role else server.spec
    logs = [spec.log] if spec.log is not None else []
    process = server.process
    if process is not None:
        if process.log.path is not None:
            logs.append(process.log.path)
        seen.last_lines = tuple(process.log.last_lines(200))
    seen.logs = tuple(logs)
    if not logs and not seen.last_lines:
        seen.trouble["log"] = f"no log of it is known ({log_name(role)}, or `log` in the file)"


def _reported(name: str, entry: Mapping[str, Any], role: str) -> PatchState:
    value = "" if entry.get("value") is None else str(entry["value"])[:500]
    where = f"at {role}" if role else ""
    return PatchState(
        name=name,
        state=str(entry.get("state", ""))[:200],
        calls=entry["calls"] if isinstance(entry.get("calls"), int) else None,
        detail=", ".join(part for part in (value, where) if part),
    )


def _declared(
    patch: PatchSpec,
    deployment: "Deployment",
    seen: Mapping[str, Seen],
    reported: PatchState | None,
) -> PatchState | None:
    """Return the state of a patch of fidelity.toml; None where nothing says that it is here."""
    named = _roles_with(patch, deployment)
    condition = patch.active_when
    about = _about(patch)
    if condition is None:
        if reported is not None:
            return _with(reported, patch)
        if not named:
            return None
        return PatchState(
            name=patch.name,
            state=UNKNOWN,
            phase=patch.phase,
            detail=f"{about}no `active_when` in fidelity.toml says how to tell",
        )
    role = "" if condition.role == ROUTER else condition.role
    roles = [role] if condition.role else named or [""]
    proofs = {role: proof_of(condition, seen[role]) for role in roles if role in seen}
    held = [proof.held for proof in proofs.values()]
    if (not held or None in held) and reported is None and not named:
        return None
    words = "; ".join(f"{role}: {p.words}" if role else p.words for role, p in proofs.items())
    state = UNKNOWN if not held or None in held else ON if all(held) else OFF
    calls = [proof.calls for proof in proofs.values() if proof.calls is not None]
    installed = bool(proofs) and all(proof.held or proof.inert for proof in proofs.values())
    return PatchState(
        name=patch.name,
        state=ON if installed else state,
        calls=sum(calls) if calls else reported.calls if reported is not None else None,
        phase=patch.phase,
        proof=words[:500] if state == ON else "",
        detail=(about + (words or f"the deployment has no role {condition.role!r}"))[:500],
    )


def _with(reported: PatchState, patch: PatchSpec) -> PatchState:
    return PatchState(
        name=reported.name,
        state=reported.state,
        calls=reported.calls,
        phase=patch.phase,
        detail=_about(patch) + reported.detail,
    )


def _about(patch: PatchSpec) -> str:
    parts = ["unconditional"] if patch.unconditional else []
    parts += [f"commit {patch.commit[:12]}"] if patch.commit else []
    return f"{', '.join(parts)}: " if parts else ""


def _roles_with(patch: PatchSpec, deployment: "Deployment") -> list[str]:
    """Return the roles whose description has the patch on; "" is the one that the suites ask."""
    spec = deployment.spec
    servers = {"" if role == ROUTER else role: s for role, s in spec.roles.items()} or {"": spec}
    return [
        role
        for role, server in servers.items()
        if any(split_value(text)[0] == patch.name for text in server.patches or ())
    ]
