"""The work tree as it is, with the test side as it was: does the patch pass the old microtest?

A copy in a temporary folder, since the user's files are not touched. Ignored files (build products,
environments) are linked, so that compiled kernels are found.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fidelity.gate.repository import Repository

_NEVER = ("__pycache__", ".git", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache")


@contextmanager
def test_side_at_base(repository: Repository, paths: Iterable[str]) -> Iterator[Path]:
    """Give a folder like the work tree, but with these files as at the base.

    Args:
        repository: the work tree and its base.
        paths: files that are put back; one that the base did not have is not there.
    """
    replaced = {path: repository.at_base(path) for path in paths}
    with tempfile.TemporaryDirectory(prefix="fidelity-gate-") as name:
        folder = Path(name)
        for path in repository.files():
            if path not in replaced:
                _put(repository.root / path, folder / path)
        for path in repository.ignored():
            if not any(part in _NEVER for part in Path(path).parts):
                _link(repository.root / path, folder / path)
        _write(folder, replaced)
        yield folder


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink() or source.is_dir():  # a folder here is a submodule
        _link(source, target)
    else:
        shutil.copy2(source, target)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(target):
        target.symlink_to(source.resolve() if source.is_symlink() else source)


def _write(folder: Path, contents: Mapping[str, bytes | None]) -> None:
    for path, content in contents.items():
        if content is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
