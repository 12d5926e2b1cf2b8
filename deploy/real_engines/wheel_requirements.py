"""What a wheel requires, as its metadata says, less the packages that are not wanted."""

import zipfile
from collections.abc import Set as AbstractSet
from pathlib import Path

try:
    from packaging.requirements import Requirement
except ImportError:  # a bare interpreter: pip has its own copy
    from pip._vendor.packaging.requirements import Requirement  # type: ignore[no-redef]


def requirements_of(wheel: Path, *, left_out: AbstractSet[str]) -> list[str]:
    """Return the requirements of a wheel that hold on this machine, without those of its extras.

    Args:
        wheel: a .whl file.
        left_out: names of packages to leave away, in lower case.
    """
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    found: list[str] = []
    for line in lines:
        field, _, value = line.partition(": ")
        if field != "Requires-Dist":
            continue
        requirement = Requirement(value)
        marker = requirement.marker
        holds = marker is None or marker.evaluate({"extra": ""})
        if holds and requirement.name.lower() not in left_out:
            extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
            found.append(f"{requirement.name}{extras}{requirement.specifier}")
    return found
