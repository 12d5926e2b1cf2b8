"""The git repository around fidelity.toml: what changed since BASE, and how it looked there.

All paths are relative to the folder of fidelity.toml; what lies outside it is not seen. No name of
a file or reference is ever read as an option, a pattern or a shell word.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fidelity.errors import ConfigError

_HUNK = re.compile(rb"^@@ -\d+(?:,\d+)? \+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One file that differs from the base.

    Attributes:
        path: of the file.
        line: first changed line, from 1.
        exists: False for a file that was deleted.
    """

    path: str
    line: int = 1
    exists: bool = True


@dataclass(frozen=True, slots=True)
class Repository:
    """A work tree and the commit that it is compared with.

    Attributes:
        root: folder of fidelity.toml.
        ref: the base as it was given.
        base: the commit at which the present branch left it.
    """

    root: Path
    ref: str
    base: str

    @classmethod
    def compared_with(cls, root: Path, ref: str) -> "Repository":
        """Find the common ancestor of a reference and HEAD.

        Raises:
            ConfigError: no git repository, no such reference, or no common ancestor here.
        """
        if _git(root, "rev-parse", "--is-inside-work-tree") is None:
            raise ConfigError(f"{root} is in no git work tree, and the gate compares two commits")
        commit = _git(
            root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
        if commit is None:
            raise ConfigError(
                f"the base {ref!r} is no commit of this repository: fetch it, or name another"
                " with --base"
            )
        sha = commit.decode().strip()
        common = _git(root, "merge-base", sha, "HEAD")
        if common is None:
            raise ConfigError(
                f"{ref!r} and HEAD have no common commit here: fetch the whole history"
                " (actions/checkout: fetch-depth: 0)"
            )
        return cls(root, ref, common.decode().strip())

    def changes(self) -> list[Change]:
        """Return every file below the root that differs: committed, staged, or only on disk."""
        paths = _split(self._must("diff", *_PLAIN, "--name-only", "-z", self.base, "--"))
        paths += _split(self._must("ls-files", "--others", "--exclude-standard", "-z"))
        return [self._change(path) for path in sorted(set(paths))]

    def at_base(self, path: str) -> bytes | None:
        """Return the contents of a file at the base; None where it was not there."""
        return _git(self.root, "cat-file", "blob", f"{self.base}:./{path}")

    def files(self) -> list[str]:
        """Return the files of the work tree that git does not ignore."""
        listed = self._must("ls-files", "--cached", "--others", "--exclude-standard", "-z")
        return sorted({p for p in _split(listed) if os.path.lexists(self.root / p)})

    def ignored(self) -> list[str]:
        """Return ignored files, and ignored folders as one: build products, environments."""
        arguments = ("--others", "--ignored", "--exclude-standard", "--directory", "-z")
        return [path.rstrip("/") for path in _split(self._must("ls-files", *arguments))]

    def prefix(self) -> str:
        """Return the way from the top of the repository to the root, with its slash."""
        return os.fsdecode(self._must("rev-parse", "--show-prefix")).rstrip("\n")

    def head(self) -> str:
        """Return the commit that is checked out."""
        return self._must("rev-parse", "HEAD").decode().strip()

    def _change(self, path: str) -> Change:
        exists = os.path.lexists(self.root / path)
        text = self._must("diff", *_PLAIN, "--unified=0", self.base, "--", path) if exists else b""
        found = _HUNK.search(text)
        return Change(path=path, line=max(1, int(found[1])) if found else 1, exists=exists)

    def _must(self, *arguments: str) -> bytes:
        made = _git(self.root, *arguments)
        if made is None:
            raise ConfigError(f"git {arguments[0]} failed in {self.root}")
        return made


_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--relative")


def _git(root: Path, *arguments: str) -> bytes | None:
    """Return what git prints; None when it refuses."""
    try:
        made = subprocess.run(
            ["git", "--literal-pathspecs", *arguments], cwd=root, capture_output=True, check=False
        )
    except OSError as error:
        raise ConfigError(f"git cannot be run: {error}") from None
    return made.stdout if made.returncode == 0 else None


def _split(listed: bytes) -> list[str]:
    return [os.fsdecode(path) for path in listed.split(b"\0") if path]
