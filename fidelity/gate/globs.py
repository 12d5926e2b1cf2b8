"""Which paths a glob of fidelity.toml means: `*` within a folder, `**` across folders."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase


def matches(path: str, globs: Iterable[str]) -> bool:
    """Tell whether a relative path is meant by one of these globs, or is named as it stands.

    A glob that ends in a slash means everything below that folder.
    """
    return any(path == glob or _match(path.split("/"), _parts(glob)) for glob in globs)


def _parts(glob: str) -> list[str]:
    parts = glob.removeprefix("./").split("/")
    return [*parts[:-1], "**"] if parts[-1] == "" else parts


def _match(path: Sequence[str], glob: Sequence[str]) -> bool:
    if not glob:
        return not path
    if glob[0] == "**":
        return any(_match(path[start:], glob[1:]) for start in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], glob[0]) and _match(path[1:], glob[1:])
