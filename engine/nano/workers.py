"""Processes that make batches ahead of the trainer.

The batch of a step depends on the seed and the step alone, and on the phase when it is made (no
more in the second cycle).
"""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.nano.mixture import SECOND_SHARES, SHARES, batch
from engine.nano.names import seeded
from engine.nano.schedule import LENGTHS, SECOND_LENGTHS, Phases
from engine.nano.tokens import Encoder

Batch = tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8]]
_AHEAD = 2


class Workers:
    """`count` processes; iterate for batches in step order, beginning with `first_step`."""

    def __init__(
        self,
        folder: Path,
        *,
        count: int,
        seed: int,
        step_tokens: int,
        first_step: int,
        phase: int,
        phases: Phases,
        second_from: int,
    ) -> None:
        context = multiprocessing.get_context("fork")
        self._phase = context.Value("i", phase)
        self._queues = [context.Queue(maxsize=_AHEAD) for _ in range(count)]
        self._next = first_step
        self._processes = [
            context.Process(
                target=_produce,
                args=(
                    *(folder, queue, self._phase, phases, seed, step_tokens),
                    *(first_step + n, count, second_from),
                ),
                daemon=True,
            )
            for n, queue in enumerate(self._queues)
        ]
        self._first = first_step
        for process in self._processes:
            process.start()

    def set_phase(self, phase: int) -> None:
        """Lengths of the batches that are made from now on."""
        self._phase.value = phase

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield self._queues[(self._next - self._first) % len(self._queues)].get()
            self._next += 1

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()


def _produce(
    folder: Path,
    queue: Any,
    phase: Any,
    phases: Phases,
    seed: int,
    step_tokens: int,
    step: int,
    stride: int,
    second_from: int,
) -> None:
    encoder = Encoder.load(folder)
    while True:
        rng = seeded(f"{seed}:{step}")
        second = step >= second_from
        lengths = SECOND_LENGTHS if second else phases[phase.value][1]
        length = rng.choices(LENGTHS, weights=lengths)[0]
        shares = SECOND_SHARES if second else SHARES
        queue.put(batch(rng, encoder, max(1, step_tokens // length), length, shares))
        step += stride
