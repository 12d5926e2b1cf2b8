"""What happens when: lengths of rows, learning rate, modes.

Progress counts from 0 to 1 over the first cycle, which teaches to read, and on to 2 over a short
second one, in which sections are asked about often: binding a line to a heading far above it goes
through the heavily compressed layer alone, and is learnt late or not at all in the first.
"""

from dataclasses import dataclass

from engine.nano.names import Rng

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
# (latest start, share of each length): short rows first, so that reading is learnt where it is easy
Phases = tuple[tuple[float, tuple[float, ...]], ...]
PHASES: Phases = (
    (0.00, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
    (0.05, (0.4, 0.6, 0.0, 0.0, 0.0, 0.0)),
    (0.075, (0.2, 0.2, 0.6, 0.0, 0.0, 0.0)),
    (0.10, (0.15, 0.15, 0.2, 0.5, 0.0, 0.0)),
    (0.13, (0.12, 0.12, 0.2, 0.1, 0.46, 0.0)),
    (0.16, (0.17, 0.16, 0.17, 0.14, 0.18, 0.18)),
)
SECOND_LENGTHS = (0.06, 0.06, 0.22, 0.32, 0.22, 0.12)
NARROW_WIDTHS = (8, 16, 32, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Fractions of the first cycle; those of the second begin with `second_`.

    The next phase of lengths begins when the loss on answers of the longest rows fell below
    `phase_loss`, or at its latest start. The indexer learns from `index_from`; from `narrow_from`,
    a share of the steps reads through it. The learning rate falls over the last `decay`.
    """

    warm_up: float = 0.02
    decay: float = 0.6
    last_rate: float = 0.02
    phase_loss: float = 0.10
    index_from: float = 0.20
    narrow_from: float = 0.45
    narrow_share: float = 0.4
    balance_until: float = 0.6
    phases: Phases = PHASES
    second_rate: float = 0.8
    second_share: float = 0.8  # of the shipped weights; the rest are those of the first cycle

    def rate(self, progress: float) -> float:
        """Factor of the learning rates."""
        if progress >= 1:
            return self.second_rate * self._shape(progress - 1)
        return self._shape(progress)

    def _shape(self, progress: float) -> float:
        rise = min(1.0, progress / self.warm_up) if self.warm_up else 1.0
        return rise * min(1.0, max(self.last_rate, (1 - progress) / self.decay))

    def kind(self, progress: float, rng: Rng) -> str:
        """What a step does: "dense", "index" (teach the indexer) or "narrow" (read through it)."""
        if progress >= self.narrow_from and rng.random() < self.narrow_share:
            return "narrow"
        return "index" if progress >= self.index_from else "dense"

    def phase(self, progress: float, reached: int) -> int:
        """The phase by time, or the one already reached."""
        by_time = max(n for n, (start, _) in enumerate(self.phases) if start <= progress)
        return max(by_time, reached)

    def longest(self, phase: int) -> int:
        """The longest rows of a phase."""
        return max(n for n, share in zip(LENGTHS, self.phases[phase][1], strict=True) if share)
