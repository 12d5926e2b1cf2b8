"""The training loop: batches in, checkpoint out, in legs that may stop anywhere."""

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from engine.nano.card import RUN_FILE
from engine.nano.config import PRESETS
from engine.nano.export import export_checkpoint, read_tensors
from engine.nano.fused_check import check_fused
from engine.nano.names import seeded
from engine.nano.optimizer import Optimizer
from engine.nano.parameters import initial_parameters
from engine.nano.schedule import NARROW_WIDTHS, Schedule
from engine.nano.state import RunState, load_state, save_state, without_prefix
from engine.nano.steps import Steps
from engine.nano.twin import Twin
from engine.nano.weights import Weights
from engine.nano.workers import Workers

LOG_EVERY = 100
FIRST_CYCLE = "first-cycle"
_PHASE_WINDOW = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One run.

    steps, second_steps: of the two cycles of `schedule`.
    command: what to print on the card.
    leg_seconds: stop and save the state after so long; run the same command again to go on.
    """

    folder: Path
    preset: str = "nano"
    steps: int = 15_000
    second_steps: int = 4_500
    leg_seconds: float = math.inf
    step_tokens: int = 65_536
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    seed: int = 21
    workers: int = 6
    graphs: bool = True
    command: str = ""
    schedule: Schedule = field(default_factory=Schedule)


class Log:
    """Lines to log.txt and the terminal, and one progress line that overwrites itself."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._live = sys.stdout.isatty()

    def write(self, line: str) -> None:
        """Keep a line."""
        print(("\r\x1b[K" if self._live else "") + line, flush=True)
        self._file.write(line + "\n")
        self._file.flush()

    def progress(self, line: str) -> None:
        """Show a line until the next one, on a terminal only."""
        if self._live:
            print("\r\x1b[K" + line, end="", flush=True)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Trainer:
    """Owns the run's model, optimizer and clock."""

    def __init__(self, config: TrainConfig, log: Log) -> None:
        self.config = config
        self.log = log
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(config.seed)
        torch.set_float32_matmul_precision("high")
        shape = PRESETS[config.preset]
        self._saved = load_state(config.folder / "state")
        values = initial_parameters(shape, config.seed)
        if self._saved:
            values = without_prefix(self._saved[1], "weights/")
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        weights = Weights(shape, values, dtype).to(self.device)
        check = check_fused(self.device, shape.hidden, shape.hc_eps)
        log.write(check.line())
        self.twin = Twin(weights, fused=check.ok)
        self.optimizer = Optimizer(weights, muon_rate=config.muon_rate, adam_rate=config.adam_rate)
        self.state = RunState(
            step=0, seconds=0.0, phase=0, tokens=0, seed=config.seed, preset=config.preset
        )
        if self._saved:
            self.state = self._saved[0]
            self.optimizer.load(without_prefix(self._saved[1], "optimizer/"))
            log.write(f"continuing after step {self.state.step}")
        count = sum(p.numel() for p in weights.trainable().values())
        log.write(f"{config.preset}: {count:,} parameters on {self._device_name()}")

    def _device_name(self) -> str:
        return torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu"

    @property
    def finished(self) -> bool:
        """Whether the schedule is at its end."""
        return self.state.step >= self.config.steps + self.config.second_steps

    def progress(self, step: int) -> float:
        """0 to 1 over the first cycle, 1 to 2 over the second."""
        config = self.config
        if step < config.steps:
            return step / config.steps
        return 1 + (step - config.steps) / max(1, config.second_steps)

    def run_leg(self) -> None:
        """Train until the run or the leg ends, then export and save the state."""
        config, start = self.config, self.state
        loop = _Loop(self)
        with self._workers() as workers:
            loop.run(workers)
        self.state = RunState(
            step=loop.step,
            seconds=start.seconds + loop.elapsed,
            phase=loop.phase,
            tokens=loop.tokens,
            seed=config.seed,
            preset=config.preset,
            legs=start.legs + 1,
        )
        self.save()
        self.log.write(
            f"step {self.state.step}: {self.state.tokens / 1e6:.0f} M tokens "
            f"in {self.state.seconds:.0f} s of training"
        )

    @contextmanager
    def _workers(self) -> Iterator[Workers]:
        config = self.config
        workers = Workers(
            config.folder,
            count=config.workers,
            seed=config.seed,
            step_tokens=config.step_tokens,
            first_step=self.state.step,
            phase=self.state.phase,
            phases=config.schedule.phases,
            second_from=config.steps,
        )
        try:
            yield workers
        finally:
            workers.close()

    def keep_first_cycle(self) -> None:
        """Write the weights with which the first cycle ended."""
        folder, shape = self.config.folder / FIRST_CYCLE, PRESETS[self.config.preset]
        export_checkpoint(folder, shape, self.twin.weights.named())

    def save(self) -> None:
        """Write the checkpoint, the facts of the run, and the state to continue from."""
        named = self.twin.weights.named()
        shipped = named
        if self.finished and self.config.second_steps:
            first = read_tensors(self.config.folder / FIRST_CYCLE)
            shipped = mean_of(first, named, self.config.schedule.second_share)
        export_checkpoint(self.config.folder, PRESETS[self.config.preset], shipped)
        tensors = {f"weights/{k}": v for k, v in named.items()}
        tensors |= {f"optimizer/{k}": v for k, v in self.optimizer.state().items()}
        save_state(self.config.folder / "state", self.state, tensors)
        facts = {
            "command": self.config.command,
            "device": self._device_name(),
            "steps": self.state.step,
            "tokens_m": self.state.tokens / 1e6,
            "minutes": self.state.seconds / 60,
            "legs": self.state.legs,
            "remark": "",
        }
        (self.config.folder / RUN_FILE).write_text(json.dumps(facts, indent=1) + "\n")


def mean_of(
    first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], share: float
) -> dict[str, torch.Tensor]:
    """The weighted mean of the floats of two sets of weights; `share` is that of the second.

    The second cycle is short, and its end is rough: a mean with the weights that it started from
    keeps what it taught and answers more of everything else.
    """
    return {
        name: torch.lerp(first[name].to(value), value, share)
        if value.is_floating_point()
        else value
        for name, value in second.items()
    }


class _Loop:
    """The steps of one leg."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._config = trainer.config
        self._steps = Steps(
            trainer.twin,
            trainer.optimizer,
            graphs=trainer.config.graphs and trainer.device.type == "cuda",
        )
        self.step = trainer.state.step
        self.phase = trainer.state.phase
        self.tokens = trainer.state.tokens
        self.elapsed = 0.0
        self._losses: list[torch.Tensor] = []
        self._recent: dict[str, list[torch.Tensor]] = {}
        self._waited = 0.0

    def run(self, workers: Workers) -> None:
        begun = time.monotonic()
        batches = iter(workers)
        logged, logged_tokens = begun, self.tokens
        while True:
            self.elapsed = time.monotonic() - begun
            progress = self._trainer.progress(self.step)
            ended = self.step >= self._config.steps + self._config.second_steps
            if self.step == self._config.steps > self._trainer.state.step:
                self._steps.synchronize()
                self._trainer.keep_first_cycle()
            if ended or self.elapsed >= self._config.leg_seconds:
                break
            self._advance_phase(progress, workers)
            asked = time.monotonic()
            batch = next(batches)
            self._waited += time.monotonic() - asked
            self._one(batch, progress)
            if self.step % LOG_EVERY == 0 or self.step in (1, 10):
                now = time.monotonic()
                speed = (self.tokens - logged_tokens) / (now - logged)
                self._report(progress, self.elapsed, speed)
                logged, logged_tokens = now, self.tokens
        self._steps.synchronize()
        self.elapsed = time.monotonic() - begun

    def _advance_phase(self, progress: float, workers: Workers) -> None:
        schedule = self._config.schedule
        phase = schedule.phase(progress, self.phase)
        if len(self._losses) >= _PHASE_WINDOW and phase == self.phase:
            self._steps.synchronize()
            loss = torch.stack(self._losses).mean().item()
            self._losses.clear()
            if loss < schedule.phase_loss and phase + 1 < len(schedule.phases):
                phase += 1
        if phase != self.phase:
            self._losses.clear()
            self._trainer.log.write(f"phase {phase} at step {self.step} ({progress:.2f})")
            self.phase = phase
            workers.set_phase(phase)

    def _one(self, batch: tuple, progress: float) -> None:  # type: ignore[type-arg]
        schedule = self._config.schedule
        rng = seeded(f"{self._config.seed}:{self.step}:mode")
        kind = schedule.kind(progress, rng)
        loss = self._steps.run(
            batch,
            kind,
            rate=schedule.rate(progress),
            balance=1e-3 if progress < schedule.balance_until else 0.0,
            width=rng.choice(NARROW_WIDTHS),
        )
        rows, length = batch[1].shape
        self.step += 1
        self.tokens += rows * length
        label = f"{length}{'' if kind != 'narrow' else 'n'}"
        self._recent.setdefault(label, []).append(loss)
        if length == schedule.longest(self.phase) and kind != "narrow":
            self._losses.append(loss)

    def _report(self, progress: float, elapsed: float, speed: float) -> None:
        self._steps.synchronize()
        losses = " ".join(
            f"{label}:{torch.stack(values).mean().item():.4f}"
            for label, values in sorted(self._recent.items(), key=lambda item: len(item[0]))
        )
        self._recent.clear()
        line = (
            f"step {self.step} ({progress:.3f}) {elapsed:.0f} s {self.tokens / 1e6:.1f} M tokens "
            f"{speed / 1e3:.0f} k/s waited {self._waited:.1f} s, loss on answers {losses}, "
            f"index {self._steps.index_loss.item():.4f}"
        )
        self._waited = 0.0
        self._trainer.log.write(line)
        if not math.isfinite(self._steps.loss.item()):
            raise FloatingPointError(f"the loss is not finite at step {self.step}; {line}")
