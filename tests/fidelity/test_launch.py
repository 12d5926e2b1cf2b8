"""A launched server is ready before it is used, and gone afterwards, however the harness ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from fidelity.config.deployment_spec import DeploymentSpec
from fidelity.config.redaction import Redactor
from fidelity.deployment import command as commands
from fidelity.deployment import supervisor
from fidelity.deployment.command import Address, fill_in
from fidelity.deployment.launch import launch
from fidelity.errors import LaunchError

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).with_name("small_server.py"))
ENVIRON = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")


def _spec(*words, **fields):
    return DeploymentSpec(
        name="small", launch=("{python}", SERVER, "{port}", *words), cwd=Path.cwd(), **fields
    )


async def _start(*words, redactor=None, log_path=None, extra=(), **fields):
    return await launch(
        _spec(*words, **fields),
        extra=extra,
        environ=ENVIRON,
        log_path=log_path,
        redactor=redactor or Redactor(),
    )


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


def _gone(pids, within_s=10.0):
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _pids(path):
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline, "the server did not write its pids"
        time.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_placeholders_are_filled_and_extra_arguments_come_last():
    address = Address(root_url="http://127.0.0.1:4711")
    command = fill_in(_spec("--slow=0"), ("--print={port} {x}",), address)
    assert command.arguments == (
        sys.executable,
        SERVER,
        "4711",
        "--slow=0",
        "--print={port} {x}",
    )
    assert command.root_url == "http://127.0.0.1:4711"


async def test_a_server_is_ready_when_launch_returns_and_gone_after_stop():
    process = await _start("--slow", "0.3")
    assert _listens(process.command.port)
    assert process.describe() == ""
    process.stop()
    assert not _listens(process.command.port)
    process.stop()  # again, harmless


@LINUX
async def test_everything_that_a_server_started_ends_with_it(tmp_path):
    process = await _start("--child", str(tmp_path / "pids"))
    pids = _pids(tmp_path / "pids")
    assert all(_alive(pid) for pid in pids)
    process.stop()
    assert _gone([*pids, process.pid], within_s=1)


async def test_a_server_that_ignores_the_polite_signal_is_killed():
    process = await _start("--stubborn", teardown_grace_s=0.3)
    started = time.monotonic()
    process.stop()
    assert 0.2 < time.monotonic() - started < 5
    assert not _listens(process.command.port)


async def test_a_server_that_dies_at_start_is_a_launch_error_with_its_last_words():
    words = ("--print", "loading weights", "--die", "CUDA out of memory: key sk-secret-1")
    with pytest.raises(LaunchError) as caught:
        await _start(*words, redactor=Redactor(["sk-secret-1"]))
    said = str(caught.value)
    assert "'small' ended with status 1 before it was ready; its last lines: " in said
    assert said.endswith("loading weights | CUDA out of memory: key [redacted]")


async def test_a_server_that_never_gets_ready_is_ended(tmp_path):
    with pytest.raises(LaunchError, match=r"'small' was not ready within 3 s \(GET http.*cannot"):
        await _start("--slow", "60", "--child", str(tmp_path / "pids"), readiness_timeout_s=3)
    assert _gone(_pids(tmp_path / "pids"), within_s=5)


async def test_a_command_that_is_not_there_is_a_launch_error():
    spec = DeploymentSpec(name="none", launch=("/no/such/server", "{port}"), cwd=Path.cwd())
    with pytest.raises(LaunchError, match="cannot start /no/such/server: No such file"):
        await launch(spec, extra=(), environ=ENVIRON, log_path=None, redactor=Redactor())
    spec = DeploymentSpec(name="none", launch=("x", "{port}"), cwd=Path("/no/such/folder"))
    with pytest.raises(LaunchError, match="cannot start 'none' in /no/such/folder"):
        await launch(spec, extra=(), environ=ENVIRON, log_path=None, redactor=Redactor())


async def test_a_port_that_was_taken_meanwhile_is_replaced(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter([taken.getsockname()[1], commands.free_port()])
        monkeypatch.setattr(commands, "free_port", lambda: next(ports))
        process = await _start(readiness_path="/health", readiness_timeout_s=20)
        process.stop()
    assert next(ports, None) is None


async def test_the_log_is_bounded_without_secrets_and_ends_with_the_last_lines(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("fidelity.deployment.server_log.MAX_LOG_BYTES", 100_000)
    log = tmp_path / "server.log"
    words = ("--print", "api_key='sk-secret-2'", "--lines", "500")
    process = await _start(*words, log_path=log, redactor=Redactor(["sk-secret-2"]))
    process.stop()
    text = log.read_text()
    assert text.startswith("api_key='[redacted]'\nline 0 ")
    assert len(text) < 200_000
    assert "lines omitted; the last ones:" in text
    assert "line 499 " in text


async def test_a_server_that_dies_later_explains_itself(tmp_path):
    process = await _start("--child", str(tmp_path / "pids"), "--print", "last words")
    os.kill(_pids(tmp_path / "pids")[0], signal.SIGSEGV)
    await anyio.to_thread.run_sync(process._process.wait, 5)
    assert process.describe() == "The server has ended with status 139; its last lines: last words"
    process.stop()


HARNESS = """
import sys, anyio, time
from pathlib import Path
from fidelity.config.deployment_spec import DeploymentSpec
from fidelity.deployment.launch import launch
from fidelity.config.redaction import Redactor

async def main():
    spec = DeploymentSpec(
        name="small", launch=("{python}", *sys.argv[1:3], "--child", sys.argv[3]), cwd=Path.cwd()
    )
    process = await launch(
        spec, extra=(), environ={"PATH": "/bin"}, log_path=None, redactor=Redactor()
    )
    print(process.pid, flush=True)
    end = sys.argv[4]
    if end == "exit":
        sys.exit(3)
    await anyio.sleep(600)

anyio.run(main)
"""


@LINUX
@pytest.mark.parametrize("how", ["exit", "SIGTERM", "SIGINT", "SIGKILL"])
def test_no_server_outlives_a_harness_that_ends(tmp_path, how):
    pids_file = tmp_path / "pids"
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, SERVER, "{port}", str(pids_file), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with harness:
        supervisor = int(harness.stdout.readline())
        pids = [supervisor, *_pids(pids_file)]
        if how != "exit":
            assert all(_alive(pid) for pid in pids)
            harness.send_signal(getattr(signal, how))
        try:
            harness.wait(20)
        finally:
            harness.kill()  # a harness that heeds no signal fails this test and holds up no other
    assert _gone(pids)


@LINUX
async def test_a_server_does_not_outlive_a_killed_supervisor(tmp_path):
    process = await _start("--child", str(tmp_path / "pids"))
    server, child, _ = _pids(tmp_path / "pids")
    os.kill(process.pid, signal.SIGKILL)
    assert _gone([server], within_s=5)
    await anyio.to_thread.run_sync(process.stop)
    assert _gone([child], within_s=1)  # it is still in the session that the supervisor led
    os.kill(_pids(tmp_path / "pids")[2], signal.SIGKILL)  # left the session: nobody can tell it


@LINUX
async def test_nothing_outlives_a_supervisor_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr("fidelity.deployment.launch._SUPERVISOR_S", 0.2)
    process = await _start("--child", str(tmp_path / "pids"), teardown_grace_s=0.1)
    pids = [process.pid, *_pids(tmp_path / "pids")]
    os.kill(process.pid, signal.SIGSTOP)
    await anyio.to_thread.run_sync(process.stop)
    assert _gone(pids, within_s=1)


@LINUX
def test_a_child_that_cannot_be_reaped_does_not_hold_the_supervisor_up(monkeypatch):
    monkeypatch.setattr(supervisor, "_ORPHANS_S", 0.2)
    flags = []
    monkeypatch.setattr(supervisor.os, "kill", lambda pid, number: None)
    monkeypatch.setattr(supervisor.os, "waitpid", lambda pid, how: flags.append(how) or (0, 0))
    with subprocess.Popen(["sleep", "60"]) as child:
        started = time.monotonic()
        supervisor._end_orphans()
        took_s = time.monotonic() - started
        monkeypatch.undo()
        child.kill()
    assert 0.1 < took_s < 5
    assert set(flags) == {os.WNOHANG}
