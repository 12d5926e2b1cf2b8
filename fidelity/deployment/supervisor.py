"""Keeps one server from outliving its run; started as a script, imports the standard library only.

    python -I supervisor.py GRACE_S SIGNAL TEARDOWN_JSON -- COMMAND...

It runs the command in a process group of its own and watches its own standard input, which the
harness holds open. When that closes (the harness ended, however: even by SIGKILL) or the command
ends, everything that the command started is ended too: by the teardown command where there is one
(a JSON list; for servers that the command only asked somebody else to start), then by signals.
On Linux orphaned grandchildren come back to this process, and the command dies with it.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.1
_ORPHANS_S = 5.0
_NOT_STARTED = 127


def main(arguments: list[str]) -> int:
    """Run the command until it ends or standard input closes; return its exit status."""
    grace_s = float(arguments[0])
    polite = signal.Signals[f"SIG{arguments[1]}"]
    teardown = json.loads(arguments[2])
    command = arguments[4:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    own = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, own)
    status = _watch(child, lets_go=bool(teardown))
    if teardown:
        _run(teardown, grace_s)
    if status is None:
        _end_group(child, polite)
        status = _wait(child, grace_s)
    _end_group(child, signal.SIGKILL)
    if status is None:
        status = _wait(child, 5.0)
    _end_orphans()
    if status is None:
        return 1
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


_stopped = False


def _stop(_number: int, _frame: object) -> None:
    global _stopped  # noqa: PLW0603 - a signal handler has no other way to speak
    _stopped = True


def _become(command: list[str], parent: int) -> None:
    """Turn the forked child into the command; never returns."""
    try:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if os.getppid() == parent:  # else the supervisor died before the line above took effect
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.execvp(command[0], command)  # noqa: S606 - the user's own argument list, no shell
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(_NOT_STARTED)


def _run(command: list[str], limit_s: float) -> None:
    """Run a command to its end, for so long at most, in a process group of its own."""
    own = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, own)
    status = _wait(child, max(1.0, limit_s))
    if status is None:
        sys.stderr.write(f"the teardown command {command[0]} took too long and was ended\n")
    elif status:
        sys.stderr.write(f"the teardown command {command[0]} failed\n")
    sys.stderr.flush()
    _end_group(child, signal.SIGKILL)


def _watch(child: int, *, lets_go: bool) -> int | None:
    """Return the child's wait status, or None when it is to be ended.

    A command that has a teardown may end well and leave its server to somebody else.
    """
    ended, status = 0, 0
    while not _stopped:
        if not ended:
            ended, status = os.waitpid(child, os.WNOHANG)
        if ended and (status or not lets_go):
            return status
        readable, _, _ = select.select([0], [], [], _POLL_S)
        if readable and not os.read(0, 4096):
            return None
    return None


def _wait(child: int, limit_s: float) -> int | None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            ended, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:
            return 0  # it ended before, and was seen
        if ended:
            return status
        time.sleep(0.02)
    return None


def _end_group(child: int, number: int) -> None:
    try:
        os.killpg(child, number)
    except (ProcessLookupError, PermissionError):
        return


def _end_orphans() -> None:
    """End what left the group and came back to this process as its reaper (Linux)."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    deadline = time.monotonic() + _ORPHANS_S
    while time.monotonic() < deadline:
        try:
            pids = [int(word) for word in children.read_text().split()]
        except (OSError, ValueError):
            return
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)  # one in the kernel's hands must not hold this up
            except (ProcessLookupError, ChildProcessError, PermissionError):
                continue
        time.sleep(0.01)


def _prctl(option: int, value: int) -> None:
    """Ask the Linux kernel; elsewhere the watch on standard input has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
