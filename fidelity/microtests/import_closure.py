"""Which files a file executes: what it imports, and what these import, read from their syntax."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path


def import_closure(
    files: Iterable[Path], root: Path, *, packages: Iterable[str], stop: Iterable[str] = ()
) -> set[Path]:
    """Return these files and all that they import, also inside functions.

    A module stands for itself, not for the `__init__` of the packages around it.

    Args:
        files: to begin with.
        root: folder from which absolute imports are resolved.
        packages: names at the top whose modules are followed; others are somebody else's.
        stop: paths relative to the root that are neither returned nor followed; one that ends in a
            slash means everything below.
    """
    known = frozenset(packages)
    walls = tuple(stop)
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if path in found or any(name == w or (w[-1:] == "/" and name.startswith(w)) for w in walls):
            continue
        found.add(path)
        if path.suffix == ".py":
            waiting += _imported(path, root, known)
    return found


def _imported(path: Path, root: Path, packages: frozenset[str]) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            around = path.parent.relative_to(root).parts
            above = ".".join(around[: len(around) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (above, node.module or "") if part)
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.partition(".")[0] in packages:
                yield from _file_of(root.joinpath(*name.split(".")))


def _file_of(stem: Path) -> Iterator[Path]:
    for path in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
        if path.is_file():
            yield path
