"""The stored baseline of a run: read, or that of the base where the diff bends it, and written."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fidelity.errors import ConfigError
from fidelity.gate import baseline as stored
from fidelity.gate.items import shown
from fidelity.gate.microtest_run import MicrotestResult
from fidelity.gate.order import Order
from fidelity.gate.repository import Change, Repository
from fidelity.gate.rules import RuleChange
from fidelity.records import Finding


class Held:
    """What a run is held against, and what it writes.

    Attributes:
        path: of the file; None for no stored baseline.
    """

    def __init__(self, order: Order, configured: Path | None) -> None:
        """Take the flag's file, else that of fidelity.toml.

        Raises:
            ConfigError: an update was asked for, and nothing names a file.
        """
        self.path = order.baseline.resolve() if order.baseline else configured
        self._update = order.baseline_update
        self._then: stored.Baseline | None = None
        if self._update and self.path is None:
            raise ConfigError("--baseline-update: give --baseline FILE, or `baseline` in [gate]")

    def bent_by(
        self, repository: Repository, changes: Sequence[Change], accepted: Sequence[str]
    ) -> list[RuleChange]:
        """Return the change of the file when the diff stores less; that of the base counts then.

        Raises:
            ConfigError: one of both cannot be read as a baseline.
        """
        if self.path is None or self._update:
            return []
        path = self.path.resolve()
        change = next((c for c in changes if repository.root / c.path == path), None)
        text = None if change is None else repository.at_base(change.path)
        if change is None or text is None:
            return []
        old = stored.decoded(text, self.path)
        if change.exists and stored.asks_no_less(old, stored.read(self.path)):
            return []
        if change.path not in accepted:
            self._then = old
        what = f"{shown(change.path)} is stored for less than it was"
        return [RuleChange(name=change.path, what=what, change=change)]

    def read(self) -> stored.Baseline:
        """Return what is held against; an empty one where there is none.

        Raises:
            ConfigError: the file is not there, or cannot be read.
        """
        if self._then is not None:
            return self._then
        if self.path is None or (self._update and not self.path.exists()):
            return stored.Baseline()
        return stored.read(self.path)

    def write(
        self,
        commit: str,
        kept: stored.Baseline,
        microtests: Mapping[str, MicrotestResult],
        runs: Mapping[str, Sequence[Finding]],
    ) -> list[str]:
        """Write what passed where an update was asked for, and say so."""
        if self.path is None or not self._update:
            return []
        stored.write(self.path, stored.updated(kept, commit, microtests, runs))
        return [f"baseline: {self.path}"]
