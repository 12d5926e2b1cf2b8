"""Progress of a run: a live bar on a terminal, plain lines anywhere else.

pytest captures the standard streams during a test, so both write to a copy of the descriptor
taken before capture began.
"""

import os
import threading
import time
from collections.abc import Callable
from io import TextIOWrapper
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 15.0
SHORT_S = 3.0
"""A batch that took less leaves no line of its own."""


def copy_of(descriptor: int) -> TextIO:
    """Return a stream on a copy of a file descriptor."""
    raw = os.fdopen(os.dup(descriptor), "wb", buffering=0)
    return TextIOWrapper(raw, encoding="utf-8", errors="replace", write_through=True)


class ProgressMeter:
    """Counts trials and tokens; `begin`, `advance` and `end` come from the event loop.

    Args:
        stream: where to write; closed by `close`.
        live: a bar that is drawn over and erased; otherwise lines.
        claims: how many claims the run has.
        limit_s: of the whole run, seconds; None without one.
        make_room: called in the main thread before a claim, so that pytest's own line ends.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        live: bool,
        claims: int,
        limit_s: float | None,
        make_room: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._live = live
        self._claims = claims
        self._limit_s = limit_s
        self._make_room = make_room
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._line_at = self._begun = 0.0
        self._done_claims = 0
        self._trials = self._total = self._tokens = self._all_tokens = 0
        self._claim = ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def claim_started(self) -> None:
        """A test begins, in the main thread."""
        self._make_room()

    def claim_ended(self) -> None:
        """A test is over, in the main thread."""
        with self._lock:
            self._done_claims += 1

    def begin(self, claim: str, trials: int, tokens: int) -> None:
        """A batch of probes starts."""
        with self._lock:
            self._claim, self._total, self._trials = claim, trials, 0
            self._all_tokens = tokens
            self._tokens = 0
            self._line_at = self._begun = time.monotonic()
            if self._live:
                self._open_bar()

    def advance(self, tokens: int) -> None:
        """One trial ended."""
        with self._lock:
            self._trials += 1
            self._tokens += tokens
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self._trials, what=self._words())
            elif not self._live and time.monotonic() - self._line_at >= LINE_EVERY_S:
                self._line_at = time.monotonic()
                self._write(self._words())

    def end(self) -> None:
        """The batch is over."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = self._task = None
            elif not self._live and time.monotonic() - self._begun >= SHORT_S:
                self._write(self._words())

    def close(self) -> None:
        """Give the stream back."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
            self._stream.close()

    def _open_bar(self) -> None:
        console = Console(file=self._stream, force_terminal=True, soft_wrap=False)
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.fields[what]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=5,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=self._total, what=self._words())
        self._bar.start()

    def _words(self) -> str:
        return (
            f"[{self._done_claims + 1}/{self._claims}] {self._claim}: {self._trials}/{self._total}"
            f" trials, {_short(self._tokens)} of {_short(self._all_tokens)} tokens{self._spent()}"
        )

    def _spent(self) -> str:
        """Return the time since the run began.

        Claims cost from one request to thousands: how many are done says nothing about the rest.
        """
        spent = f", {_span(time.monotonic() - self._started)}"
        return spent if self._limit_s is None else f"{spent} of at most {_span(self._limit_s)}"

    def _write(self, line: str) -> None:
        self._stream.write(f"fidelity: {line}\n")


def _short(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 10_000 else str(tokens)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
