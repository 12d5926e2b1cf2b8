"""Was a microtest loosened? Two witnesses: its text, and its version of the base on this patch."""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fidelity.gate.items import Item, shown
from fidelity.gate.loosened import Loosening, loosened
from fidelity.gate.mapping import Touched
from fidelity.gate.microtest_run import MicrotestResult, Runner
from fidelity.gate.overlay import test_side_at_base
from fidelity.gate.proof import unproven
from fidelity.gate.pytest_files import IMPORTED_FIRST
from fidelity.gate.repository import Repository
from fidelity.words import Outcome

MOST_NAMED = 5
_READ_BY_NAME = frozenset(("conftest.py", "__init__.py"))


@dataclass(frozen=True, slots=True)
class Strictness:
    """Compares the microtests of a diff with those at its base.

    `accepted` names patches and files; `ruled` are files that are told as rules of the gate.
    """

    repository: Repository
    runner: Runner
    accepted: Sequence[str]
    ruled: Collection[str] = ()

    def judge(self, touched: Touched, now: MicrotestResult) -> list[Item]:
        """Return what was loosened or is not proved to ask for as much; else one pass.

        Nothing is returned where the test side did not change, or the base had no microtest.
        """
        old_path = touched.microtest_at_base
        old = self.repository.at_base(old_path) if old_path else None
        if old is None:
            return []
        if not touched.patch.microtest:
            return []  # the missing microtest is told by itself
        new = _read(self.repository.root / touched.patch.microtest)
        changed = new is not None and new != old
        if not changed and not touched.support:
            return []
        items = [*self._of_text(touched, touched.patch.microtest, old, new)] if changed else []
        for change in touched.support:
            if change.path not in self.ruled:
                then = self.repository.at_base(change.path)
                there = _read(self.repository.root / change.path)
                items += self._of_text(touched, change.path, then, there)
        ran = self._at_base(touched, old_path)
        why = _by_run(touched, now, ran, self.repository.ref)
        if why:
            items.append(self._loosened(touched, touched.patch.microtest, why, 1))
        return items or [
            Item(
                rule="microtest-loosened",
                subject=touched.patch.name,
                outcome=Outcome.PASS,
                message=(
                    f"{shown(touched.patch.microtest)} or what it rests on changed: its text proves"
                    f" that it asks for no less, and its version of {shown(self.repository.ref)}"
                    " passes too"
                ),
                duration_s=ran.duration_s,
            )
        ]

    def _of_text(
        self, touched: Touched, path: str, old: bytes | None, new: bytes | None
    ) -> Iterator[Item]:
        """Compare two versions of a file: what it asks for no more, else what is not proved."""
        own_name = PurePosixPath(path).name
        if path.endswith(".py") and (old is not None or own_name in _READ_BY_NAME):
            found = loosened(_text(old), _text(new))
            for text, line in _told(path, found):
                yield self._loosened(touched, path, text, line)
            if found:
                return
        then = _text(self.repository.at_base(touched.microtest_at_base))
        for text, line in _told(path, _unproven(path, old, new, then)):
            yield self._changed(touched, path, text, line)

    def _at_base(self, touched: Touched, old_path: str) -> MicrotestResult:
        paths = {old_path, touched.patch.microtest, *(change.path for change in touched.support)}
        with test_side_at_base(self.repository, paths) as folder:
            return self.runner.run(old_path, folder, f"{touched.patch.name}.at-base")

    def _loosened(self, touched: Touched, path: str, text: str, line: int) -> Item:
        words = f"the microtest of {touched.patch.name} was loosened: {text}"
        return self._item("microtest-loosened", touched, path, words, line)

    def _changed(self, touched: Touched, path: str, text: str, line: int) -> Item:
        name = touched.patch.name
        words = (
            f"what judges {name} changed, and its text does not prove that it asks for as much:"
            f" {text}; after reading it, --accept-loosened {name} or {shown(path)} lets it through"
        )
        return self._item("microtest-changed", touched, path, words, line)

    def _item(self, rule: str, touched: Touched, path: str, words: str, line: int) -> Item:
        name = touched.patch.name
        accepted = name in self.accepted or path in self.accepted
        return Item(
            rule=rule,
            subject=name,
            outcome=Outcome.PASS if accepted else Outcome.FAIL,
            message=f"accepted by --accept-loosened: {words}" if accepted else words,
            path=path,
            line=line,
        )


def _by_run(touched: Touched, now: MicrotestResult, then: MicrotestResult, ref: str) -> str:
    """Say what the base's version of the microtest tells; "" where it passes, no less than now."""
    if now.outcome is Outcome.PASS and then.outcome is not Outcome.PASS:
        return (
            f"it passes, and its version of {shown(ref)} does not pass on the same patch:"
            f" {then.reason}"
        )
    if then.outcome is not Outcome.PASS:
        return ""  # both fail: the patch is broken, and its microtest says so
    fewer = [name for name, count in then.passed.items() if now.passed[name] < count]
    if (
        now.outcome is Outcome.PASS
        and touched.microtest_at_base == touched.patch.microtest
        and fewer
    ):
        more = f" and {len(fewer) - 1} more" if fewer[1:] else ""
        name = fewer[0].rpartition(".")[2]
        return (
            f"{name}{more} passed in its version of {shown(ref)}, and runs no more, or less often"
        )
    return ""


def _unproven(path: str, old: bytes | None, new: bytes | None, microtest: str) -> list[Loosening]:
    if not path.endswith(".py"):
        return [Loosening("it changed, and holds no Python", 1)]
    if old is None:
        folder = PurePosixPath(path).parent
        beside = [name for name in (path, str(folder)) if name]
        tops = {PurePosixPath(name).name.removesuffix(".py") for name in beside}
        if tops & (IMPORTED_FIRST | _imported(microtest)):
            return [Loosening("it is new, and may be imported in place of another module", 1)]
        if PurePosixPath(path).name not in _READ_BY_NAME:
            return []  # nothing that was there can use it
    if new is None:
        return [Loosening("it is gone", 1)]
    return unproven(_text(old), _text(new))


def _imported(source: str) -> set[str]:
    """Return the names at the top of every import of a file."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in names}


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8", "replace")


def _told(path: str, found: Sequence[Loosening]) -> Iterator[tuple[str, int]]:
    for one in found[:MOST_NAMED]:
        yield f"{PurePosixPath(path).name}: {one.message}", one.line
    if len(found) > MOST_NAMED:
        yield f"and {len(found) - MOST_NAMED} more", found[MOST_NAMED].line


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
