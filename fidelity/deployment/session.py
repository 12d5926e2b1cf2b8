"""Ends what a supervisor leaves behind that was killed or hangs: its session, and its descendants.

Reads Linux's /proc; elsewhere nothing is found, and the supervisor has to do.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LIMIT_S = 5.0
_POLL_S = 0.05
_GONE = "ZX"
"""States of a process that has ended."""


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int


def end_session(leader: int, *, reaped: bool, limit_s: float = _LIMIT_S) -> bool:
    """Kill a session leader, everything in its session, and everything that they started.

    Args:
        leader: id of a process that was started with a session of its own; it may have ended.
        reaped: its end was waited for; its id may be somebody else's by now, which it can only be
            when nothing of its session is left.
        limit_s: how long that may take; a process in the kernel's hands heeds no signal.

    Returns: True when none of them is left.
    """
    deadline = time.monotonic() + limit_s
    known: set[int] = set()
    while True:
        alive = list(_processes())
        if reaped and any(process.pid == leader for process in alive):
            return True
        known |= _family(leader, alive)
        left = known & {process.pid for process in alive}
        if not left:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _family(leader: int, alive: list[_Process]) -> set[int]:
    found = {p.pid for p in alive if leader in (p.pid, p.session)}
    while more := {p.pid for p in alive if p.parent in found} - found:
        found |= more
    return found


def _processes() -> Iterator[_Process]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # the name before the last bracket may hold anything
            words = stat.read_text(errors="replace").rpartition(") ")[2].split()
            if words[0] not in _GONE:
                yield _Process(int(stat.parent.name), int(words[1]), int(words[3]))
