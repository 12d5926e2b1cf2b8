"""What asking classes with a miss again may cost, on a server slow enough for it to matter.

A model that misses here and there opens many classes of 22 probes each: without a bound they cost
several times the sweep that found them, and the claims behind it find the budget spent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.probes.probe import Probe

SHARE = 0.5
"""Of what the lengths of one sweep may cost."""


class Room:
    """Admits the probes of one class after the other; the first class always."""

    def __init__(self, sweep_tokens: int | None) -> None:
        """Begin with a share of what the lengths of one sweep may cost; None bounds nothing."""
        self._left = None if sweep_tokens is None else SHARE * sweep_tokens
        self._admitted = False
        self.refused = 0

    def admits(self, probes: Sequence[Probe]) -> bool:
        """Tell whether a class may be asked, and take what it costs."""
        cost = sum(probe.cost_tokens for probe in probes)
        if self._left is None:
            return True
        if self._admitted and cost > self._left:
            self.refused += 1
            return False
        self._admitted = True
        self._left -= cost
        return True

    @property
    def note(self) -> str:
        """What was not asked and why; "" when everything was."""
        if not self.refused:
            return ""
        what = "1 class" if self.refused == 1 else f"{self.refused} classes"
        return f"{what} with a miss not asked again: the budget's token cap ends there"
