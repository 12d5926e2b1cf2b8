"""Was a microtest asked whole? A verdict over some of its tests would hide what the others see."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pytest

from fidelity.microtests.results import PatchReport
from fidelity.words import PatchVerdict

CONVICTED, UNDECIDED = 1, 2


class Part(NamedTuple):
    """The tests of one patch on inputs of one source."""

    patch: str
    source: str


class Asked:
    """Counts what was collected of each microtest, and what of it is left to run."""

    def __init__(self, part_of: Callable[[pytest.Item], Part]) -> None:
        self._part_of = part_of
        self._collected: dict[Part, set[str]] = {}
        self._dropped: set[str] = set()

    def collected(self, item: pytest.Item) -> None:
        """Remember a test that there is."""
        self._collected.setdefault(self._part_of(item), set()).add(item.nodeid)

    def dropped(self, items: Iterable[pytest.Item]) -> None:
        """Remember tests that the settings leave out: inputs or a checkpoint that nobody gave."""
        self._dropped |= {item.nodeid for item in items}

    def partial(self, left: Sequence[pytest.Item], config: pytest.Config) -> dict[Part, str]:
        """Return a sentence for each part that was asked in part only."""
        runs: dict[Part, set[str]] = {}
        for item in left:
            runs.setdefault(self._part_of(item), set()).add(item.nodeid)
        named = {
            (config.invocation_params.dir / path).resolve()
            for path, mark, _ in (argument.partition("::") for argument in config.args)
            if mark
        }
        found = {}
        for part, ids in runs.items():
            missing = self._collected.get(part, set()) - ids - self._dropped
            if missing:
                found[part] = (
                    f"{len(missing)} of {len(missing | ids)} tests of its microtest were not"
                    " selected: a part of them decides nothing"
                )
        for item in left:
            if item.path in named:
                text = "single tests of its microtest were named: a part of them decides nothing"
                found.setdefault(self._part_of(item), text)
        return found


def exit_code(reports: Iterable[PatchReport], code: int) -> int:
    """Return the exit code of a session that pytest would end with `code`.

    What pytest calls green is none where a patch is convicted (1), inert or undecided (2).
    """
    found = {report.verdict for report in reports}
    if code != 0 or found <= {PatchVerdict.EXONERATED}:
        return code
    return CONVICTED if PatchVerdict.CONVICTED in found else UNDECIDED


def closing_sentence(reports: Iterable[PatchReport]) -> str:
    """Say which patches are neither exonerated nor convicted, and why; "" for none."""
    open_ = [r for r in reports if r.verdict in (PatchVerdict.INERT, PatchVerdict.UNDECIDED)]
    if not open_:
        return ""
    first = open_[0]
    more = f", and {len(open_) - 1} more" if open_[1:] else ""
    return f"fidelity: {first.title} is {first.verdict}{more}: {first.reason}"
