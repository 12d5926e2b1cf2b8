"""Starts the product as a user does, in a process of its own, and reads what it leaves behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fidelity.records import Finding, Manifest, Trial, Verdict, read_journal
from fidelity.words import Outcome

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
RUN_DEADLINE_S = 2_400.0
"""Of any one run: several times what it takes alone, since machines of a CI are shared."""
GONE_DEADLINE_S = 60.0
RUNS: list["Ran"] = []
"""Every run of this session, for the table at its end."""

Process = tuple[int, int]
"""A process id and the time it started, so that a reused id is another process."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A run that has ended.

    Attributes:
        name: what it is for.
        code: exit code; negative for a signal.
        output: stdout and stderr together.
        folder: of the run.
        peak_bytes: sum of the peak resident sizes of the command and all that it started; pages
            that they share count for each.
        left_behind: processes that it started and that outlived it.
    """

    name: str
    words: tuple[str, ...]
    code: int
    output: str
    folder: Path
    seconds: float
    peak_bytes: int
    left_behind: frozenset[Process]
    records: tuple = field(repr=False)

    @property
    def findings(self) -> dict[str, Finding]:
        return {r.claim: r for r in self.records if isinstance(r, Finding)}

    @property
    def trials(self) -> list[Trial]:
        return [r for r in self.records if isinstance(r, Trial)]

    @property
    def planned(self) -> tuple[str, ...]:
        return next(r for r in self.records if isinstance(r, Manifest)).planned_claims

    @property
    def verdict(self) -> Verdict:
        return [r for r in self.records if isinstance(r, Verdict)][-1]

    @property
    def report(self) -> str:
        return (self.folder / "report.html").read_text(encoding="utf-8")

    def outcomes(self) -> Counter[str]:
        return Counter(str(f.outcome) for f in self.findings.values())

    def suites_with(self, *outcomes: Outcome) -> set[str]:
        """File stems of the suites in which a claim came out so."""
        return {f"test_{f.suite}" for f in self.findings.values() if f.outcome in outcomes}

    def told(self) -> str:
        """What came of it, for the message of a failed assertion."""
        lines = [f"exit {self.code} of {' '.join(self.words)}"]
        lines += [
            f"{f.outcome} {f.claim}: {f.reason[:400]}"
            for f in self.findings.values()
            if f.outcome is not Outcome.PASS
        ]
        return "\n".join([*lines, self.output[-2_000:]])


class Running:
    """A run in progress; context manager that leaves no process behind."""

    def __init__(
        self, words: Iterable[str], *, folder: Path, name: str, environ: dict[str, str] | None
    ) -> None:
        self.words = tuple(words)
        self.folder = folder
        self.name = name
        self._log = folder.with_name(f"{folder.name}.{time.monotonic_ns()}.log")
        self._environ = clean_environ() | (environ or {})

    def __enter__(self):
        self._began = time.monotonic()
        self._peaks: dict[Process, int] = {}
        self._over = threading.Event()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self.words,
                cwd=ROOT,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)
        self.await_gone()

    def _watch(self) -> None:
        while not self._over.is_set():
            for process in family(self.process.pid):
                peak = _peak_bytes(process[0])
                self._peaks[process] = max(peak, self._peaks.get(process, 0))
            self._over.wait(0.5)

    @property
    def started(self) -> frozenset[Process]:
        """The command and all processes that it has been seen to start."""
        return frozenset(self._peaks)

    def trials_by_suite(self) -> Counter[str]:
        path = self.folder / "run.jsonl"
        if not path.exists():
            return Counter()
        return Counter(r.suite for r in read_journal(path) if isinstance(r, Trial))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a state of the run in progress; fails when it ends before or takes too long."""
        deadline = self._began + RUN_DEADLINE_S
        while not condition():
            assert self.process.poll() is None, (
                f"the run ended too early:\n{self.output()[-2_000:]}"
            )
            assert time.monotonic() < deadline, f"not reached in time:\n{self.output()[-2_000:]}"
            time.sleep(0.05)

    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """SIGKILL to the harness alone: it cannot clean up."""
        os.kill(self.process.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        """Ctrl-C in a terminal: SIGINT to its process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def await_gone(self) -> frozenset[Process]:
        """Return what still lives of the run's processes at the deadline."""
        deadline = time.monotonic() + GONE_DEADLINE_S
        while alive := frozenset(p for p in self.started if _start_of(p[0]) == p[1]):
            if time.monotonic() > deadline:
                return alive
            time.sleep(0.05)
        return alive

    def end(self) -> Ran:
        """Wait for its end and read what it left."""
        code = self.process.wait(max(1.0, self._began + RUN_DEADLINE_S - time.monotonic()))
        seconds = time.monotonic() - self._began
        left_behind = self.await_gone()
        self._over.set()
        self._watcher.join()
        path = self.folder / "run.jsonl"
        ran = Ran(
            name=self.name,
            words=self.words,
            code=code,
            output=self.output(),
            folder=self.folder,
            seconds=seconds,
            peak_bytes=sum(self._peaks.values()),
            left_behind=left_behind,
            records=tuple(read_journal(path)) if path.exists() else (),
        )
        RUNS.append(ran)
        return ran


def fidelity_run(
    *arguments: str, folder: Path, name: str, environ: dict[str, str] | None = None
) -> Running:
    """`fidelity run ARGUMENTS --run-dir=FOLDER`."""
    words = (str(BIN / "fidelity"), "run", *arguments, f"--run-dir={folder}")
    return Running(words, folder=folder, name=name, environ=environ)


def finished(*arguments: str, folder: Path, name: str) -> Ran:
    """Run `fidelity run` to its end."""
    with fidelity_run(*arguments, folder=folder, name=name) as running:
        return running.end()


def clean_environ() -> dict[str, str]:
    """The environment of a user who has set nothing up for the product."""
    ours = ("FIDELITY_", "OPENAI_", "PYTEST_", "GITHUB_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return kept | {"OMP_NUM_THREADS": "1"}


def family(root: int) -> set[Process]:
    """Return a process and its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                parents[int(entry.name)] = int(fields[1])
    found, frontier = {root}, [root]
    while frontier:
        parent = frontier.pop()
        children = [pid for pid, of in parents.items() if of == parent and pid not in found]
        found.update(children)
        frontier += children
    started = ((pid, _start_of(pid)) for pid in found)
    return {(pid, start) for pid, start in started if start is not None}


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; [] when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _start_of(pid: int) -> int | None:
    """Return when a process started, in ticks; None for one that is gone, or a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
