"""Verdicts on disk, one JSON file a patch, value and source; each expires when its scope changes.

folder = Path("runs/patches")
save(report, folder)
kept = load(folder, "mhc_bf16", scope_now)
if kept.expired: ...  # "code changed", "device was NVIDIA H200, is cpu", ...
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fidelity.errors import JournalError
from fidelity.microtests.results import PatchReport, Scope


class Kept(NamedTuple):
    """A stored verdict, None when there is none, and why it no longer counts ("" if it does)."""

    report: PatchReport | None
    expired: str


def save(report: PatchReport, folder: Path) -> Path:
    """Write `folder/STEM.json` in one step, so that a reader never sees half a verdict.

    Raises:
        JournalError: the folder cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(report), indent=1)
    path = folder / f"{report.stem}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{report.stem}.")
        with os.fdopen(handle, "wb") as file:
            file.write(text + b"\n")
        Path(temporary).replace(path)
    except OSError as error:
        raise JournalError(f"the verdict on {report.name} cannot be written: {error}") from None
    return path


def load(folder: Path, name: str, scope: Scope) -> Kept:
    """Read the stored verdict and hold its scope against the present one.

    Args:
        folder: of the verdicts.
        name: `PatchReport.stem`: of the patch, its value and the source of its inputs.
        scope: the present one.

    Raises:
        JournalError: the file is there but cannot be read as a verdict.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        return Kept(None, f"no verdict on {name} in {folder}")
    report = read(path)
    return Kept(report, expiry(report.scope, scope))


def read(path: Path) -> PatchReport:
    """Read one verdict.

    Raises:
        JournalError: the file cannot be read as a verdict.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=PatchReport)
    except (OSError, msgspec.DecodeError) as error:
        raise JournalError(f"{path} cannot be read as a verdict: {error}") from None


def expiry(then: Scope, now: Scope) -> str:
    """Say what changed since the verdict; "" when it still holds.

    A verdict over more shapes than are asked for now still holds for these.
    """
    changed = ["code changed"] if then.code != now.code else []
    for field in ("dtype", "data", "device", "seed"):
        before, after = getattr(then, field), getattr(now, field)
        if before != after:
            changed.append(f"{field} was {before}, is {after}")
    if then.contents != now.contents:
        changed.append("the contents of the checkpoint or dumps changed")
    new = sorted(set(now.shapes) - set(then.shapes))
    if new:
        changed.append(f"shapes not measured then: {', '.join(new[:3])}")
    return "; ".join(changed)


def code_hash(files: Sequence[Path]) -> str:
    """sha256 over the contents of these files, in the order of their paths.

    Raises:
        JournalError: one of them cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(set(files), key=lambda path: path.as_posix()):
        try:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        except OSError as error:
            raise JournalError(f"source of a patch cannot be read: {error}") from None
    return digest.hexdigest()
