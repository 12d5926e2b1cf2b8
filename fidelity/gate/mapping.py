"""From changed files to patches: by the `files` of each [[patch]], by its microtest and its entry.

The entries at the base count too, so that a patch does not escape by leaving fidelity.toml.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from fidelity.config.config_file import FILE_NAME, ConfigFile, GateSpec
from fidelity.config.patch_spec import PatchSpec
from fidelity.gate.globs import matches
from fidelity.gate.items import Item, shown
from fidelity.gate.repository import Change
from fidelity.words import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """A patch that the diff concerns.

    Attributes:
        patch: as fidelity.toml describes it now.
        was: as it did at the base; None for a new patch.
        change: the place to name: of its own files first.
        support: changed files that its microtest rests on.
    """

    patch: PatchSpec
    was: PatchSpec | None
    change: Change
    support: tuple[Change, ...] = ()

    @property
    def microtest_at_base(self) -> str:
        """Path of its microtest at the base."""
        return self.was.microtest if self.was and self.was.microtest else self.patch.microtest


def touched_patches(
    changes: Sequence[Change],
    now: ConfigFile,
    was: ConfigFile | None,
    everywhere: Sequence[Change] = (),
) -> list[Touched]:
    """Return the patches that a diff concerns, in the order of fidelity.toml.

    Args:
        changes: of the diff.
        now: fidelity.toml.
        was: the same at the base.
        everywhere: those of the changes that bend how every microtest is run.
    """
    config = _config_change(changes, now)
    old_shared = was.gate.shared if was is not None else ()
    shared = [c for c in changes if matches(c.path, (*now.gate.shared, *old_shared))]
    found = []
    for patch in now.patches.values():
        old = entry_at_base(patch, now, was)
        globs = (*patch.files, *(old.files if old else ()))
        own = [c for c in changes if matches(c.path, globs)]
        test = [c for c in changes if c.path in {patch.microtest, old.microtest if old else ""}]
        named = was.gate.microtest_support if was is not None else ()
        support = [
            c
            for c in changes
            if is_support(c.path, patch, now) or matches(c.path, named) or c in everywhere
        ]
        entry = [config] if config is not None and (was is None or old != patch) else []
        places = [*sorted(own, key=lambda c: not c.exists), *test, *entry, *shared, *support]
        if places:
            found.append(Touched(patch=patch, was=old, change=places[0], support=tuple(support)))
    return found


def is_support(path: str, patch: PatchSpec, config: ConfigFile) -> bool:
    """Tell whether a microtest rests on this file.

    conftest.py of its folder and of those above; Python files beside it that are neither a patch
    nor another's microtest; and what `microtest_support` names.
    """
    if not patch.microtest or path == patch.microtest:
        return False
    if matches(path, config.gate.microtest_support):
        return True
    file, folder = PurePosixPath(path), PurePosixPath(patch.microtest).parent
    if file.name == "conftest.py":
        return file.parent == folder or file.parent in folder.parents
    at_root = not folder.parts  # everything lies below it: that says nothing
    beside = not at_root and folder in file.parents and file.suffix == ".py"
    return beside and not file.name.startswith("test_") and not _is_of_patches(path, config)


def _is_of_patches(path: str, config: ConfigFile) -> bool:
    globs = [glob for patch in config.patches.values() for glob in patch.files]
    return matches(path, (*globs, *config.gate.shared))


def entry_at_base(patch: PatchSpec, now: ConfigFile, was: ConfigFile | None) -> PatchSpec | None:
    """Return the entry that this patch had at the base, also under another name."""
    if was is None:
        return None
    if patch.name in was.patches:
        return was.patches[patch.name]
    renamed = [old for name, old in was.patches.items() if name not in now.patches]
    for old in renamed:
        same_test = bool(old.microtest) and old.microtest == patch.microtest
        if same_test or set(old.files) & set(patch.files):
            return old
    return None


def strays(
    changes: Sequence[Change], files: Iterable[str], now: ConfigFile, was: ConfigFile | None
) -> list[Item]:
    """Return an item for every file of a patched area that belongs to no entry any more, or yet.

    Args:
        changes: of the diff.
        files: of the work tree.
        now: fidelity.toml.
        was: the same at the base; its `watch` and entries count too.
    """
    old = GateSpec() if was is None else was.gate
    watched = (*now.gate.watch, *old.watch)
    microtests = [patch.microtest for patch in now.patches.values()]
    claimed = [glob for patch in now.patches.values() for glob in patch.files]
    claimed += [*now.gate.shared, *now.gate.microtest_support, *microtests]
    found = [
        _stray(c.path, c.line, f"{shown(c.path)} lies in a patched area, and is")
        for c in changes
        if c.exists and matches(c.path, watched) and not matches(c.path, claimed)
    ]
    seen = {item.subject for item in found}
    config = _config_change(changes, now)
    if was is None or config is None:
        return found
    for path in files:
        owners = [name for name, patch in was.patches.items() if matches(path, patch.files)]
        if owners and shown(path) not in seen and not matches(path, claimed):
            text = f"{shown(path)} belonged to {owners[0]} at the base, and now is"
            found.append(_stray(path, 1, text))
    return found


def _config_change(changes: Sequence[Change], now: ConfigFile) -> Change | None:
    name = FILE_NAME if now.path is None else now.path.name
    return next((change for change in changes if change.path == name), None)


def _stray(path: str, line: int, text: str) -> Item:
    return Item(
        rule="patch-without-entry",
        subject=shown(path),
        outcome=Outcome.FAIL,
        message=f"a patch without an entry: {text} in the `files` of no [[patch]] of {FILE_NAME}",
        path=path,
        line=line,
    )
