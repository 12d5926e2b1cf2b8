"""Was a microtest loosened? Two witnesses: its text, and its version of the base on this patch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fidelity.gate.items import Item, shown
from fidelity.gate.loosened import Loosening, loosened
from fidelity.gate.mapping import Touched
from fidelity.gate.microtest_run import MicrotestResult, Runner
from fidelity.gate.overlay import test_side_at_base
from fidelity.gate.repository import Repository
from fidelity.words import Outcome

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Strictness:
    """Compares the microtests of a diff with those at its base."""

    repository: Repository
    runner: Runner
    accepted: Sequence[str]

    def judge(self, touched: Touched, now: MicrotestResult) -> list[Item]:
        """Return what was loosened; one pass when the test side changed and asks for no less.

        Nothing is returned where it did not change, or where the base had no microtest.
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
        found = self._by_text(touched, old, new or b"") if changed else []
        found += [found_ for change in touched.support for found_ in self._of_support(change.path)]
        ran = self._at_base(touched, old_path)
        items = [self._item(touched, path, text, line) for path, text, line in found]
        why = _by_run(touched, now, ran, self.repository.ref)
        if why:
            items.append(self._item(touched, touched.patch.microtest, why, 1))
        return items or [
            Item(
                rule="microtest-loosened",
                subject=touched.patch.name,
                outcome=Outcome.PASS,
                message=(
                    f"{shown(touched.patch.microtest)} or what it rests on changed: its text asks"
                    f" for no less, and its version of {shown(self.repository.ref)} passes too"
                ),
                duration_s=ran.duration_s,
            )
        ]

    def _by_text(self, touched: Touched, old: bytes, new: bytes) -> list[tuple[str, str, int]]:
        return _told(touched.patch.microtest, _compare(old, new))

    def _of_support(self, path: str) -> list[tuple[str, str, int]]:
        """Compare a file that the microtest rests on; one that is new can add ways out."""
        if not path.endswith(".py"):
            return []
        old = self.repository.at_base(path) or b""
        return _told(path, _compare(old, _read(self.repository.root / path) or b""))

    def _at_base(self, touched: Touched, old_path: str) -> MicrotestResult:
        paths = {old_path, touched.patch.microtest, *(change.path for change in touched.support)}
        with test_side_at_base(self.repository, paths) as folder:
            return self.runner.run(old_path, folder, f"{touched.patch.name}.at-base")

    def _item(self, touched: Touched, path: str, text: str, line: int) -> Item:
        name = touched.patch.name
        accepted = name in self.accepted
        words = f"the microtest of {name} was loosened: {text}"
        return Item(
            rule="microtest-loosened",
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


def _compare(old: bytes, new: bytes) -> list[Loosening]:
    return loosened(old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))


def _told(path: str, found: Sequence[Loosening]) -> list[tuple[str, str, int]]:
    lines = [(path, f"{PurePosixPath(path).name}: {f.message}", f.line) for f in found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        lines.append((path, f"and {len(found) - MOST_NAMED} more", found[MOST_NAMED].line))
    return lines


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
