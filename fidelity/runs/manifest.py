"""The record that opens an epoch, and the patch states that close a run."""

import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fidelity.records import CapabilityState, GoldenState, Manifest, RoleState

if TYPE_CHECKING:
    from fidelity.config.settings import Settings
    from fidelity.deployment.beside import Beside
    from fidelity.deployment.deployment import Deployment

_DISTRIBUTIONS = ("fidelity-harness", "pytest", "httpx", "anyio", "msgspec", "scipy")


def manifest_of(
    settings: "Settings",
    deployment: "Deployment | None",
    *,
    run_id: str,
    epoch: int,
    command: Sequence[str],
    planned: Sequence[str],
    golden: "Beside",
    left_out: Mapping[str, str],
) -> Manifest:
    """Return the manifest; of a deployment that could not be opened, what settings say of it."""
    target = settings.target
    known: dict[str, Any] = {
        "base_url": target.base_url or "",
        "model": settings.model or target.model or "",
        "launched": bool(target.launch),
        "launch_command": settings.redactor.arguments(target.launch),
    }
    if deployment is not None:
        known = {
            "base_url": deployment.base_url,
            "model": deployment.model,
            "launched": deployment.launched,
            "launch_command": settings.redactor.arguments(deployment.launch_command),
            "server_info": settings.redactor.json(dict(deployment.server_info or {})),
            "max_model_len": deployment.capabilities.max_model_len,
            "capabilities": tuple(
                state
                for state in deployment.capabilities.values()
                if isinstance(state, CapabilityState)
            ),
            "patches": getattr(deployment, "patches", ()),
            "roles": _roles(settings, deployment),
        }
    return Manifest(
        run_id=run_id,
        epoch=epoch,
        deployment=target.name,
        command=settings.redactor.arguments(command),
        budget=settings.budget,
        seed=settings.seed,
        versions=versions(),
        git_commit=git_commit(),
        settings=settings.settings,
        expects=tuple(target.expects),
        planned_claims=tuple(planned),
        golden=_golden(settings, golden),
        left_out=dict(left_out),
        **known,
    )


def _roles(settings: "Settings", deployment: "Deployment") -> tuple[RoleState, ...]:
    """Return what is known of each process of a deployment that has several."""
    servers = getattr(deployment, "servers", None)
    if servers is None:
        return ()
    return tuple(
        RoleState(
            name=role,
            url=servers.addresses[role].root_url,
            host=spec.host,
            launched=role in servers.processes,
            launch_command=settings.redactor.arguments(servers.processes[role].command.arguments)
            if role in servers.processes
            else (),
            patches=spec.patches or (),
        )
        for role, spec in settings.target.roles.items()
    )


def _golden(settings: "Settings", golden: "Beside") -> GoldenState | None:
    """Return what is known of the deployment to compare with; None when none is asked for."""
    named, redactor = settings.beside, settings.redactor
    if named is None:
        return None
    deployment = golden.deployment
    if deployment is None:
        return GoldenState(
            name=named.target.name,
            base_url=named.target.base_url or "",
            failure=redactor.text(str(golden.failure or "not opened"))[:1_000],
        )
    return GoldenState(
        name=deployment.name,
        base_url=deployment.base_url,
        model=deployment.model,
        launched=deployment.launched,
        launch_command=redactor.arguments(deployment.launch_command),
        server_info=redactor.json(dict(deployment.server_info or {})),
        dialect=getattr(deployment.capabilities, "dialect", ""),
        version=getattr(deployment.capabilities, "version", ""),
        dtype=named.dtype or "",
    )


def versions() -> dict[str, str]:
    """Return the versions of what measures."""
    found = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def git_commit() -> str:
    """Return the commit of the checkout that the harness runs from, "" when it is installed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
