"""Real servers in processes of their own, and what tests ask of them."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[3]
START_LIMIT_S = 60


class Served:
    """A running server: a client, and the few requests that most tests make."""

    def __init__(self, process: subprocess.Popen, url: str, stderr: Path) -> None:
        self.process, self.url, self.stderr = process, url, stderr
        self.stdout = stderr.with_name("stdout")
        self.client = httpx.Client(base_url=url, timeout=30)

    def chat(self, content="hello", /, **more) -> httpx.Response:
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
        body = {"model": "echo", "messages": messages} | more
        return self.client.post("/v1/chat/completions", json=body)

    def complete(self, prompt, /, **more) -> httpx.Response:
        return self.client.post("/v1/completions", json={"model": "echo", "prompt": prompt} | more)

    def events(self, path: str, body: dict) -> list:
        """The JSON of every event of a stream; [DONE] must be the last."""
        response = self.client.post(path, json=body | {"stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.text.split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def chat_events(self, content="hello", /, **more) -> list:
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
        body = {"model": "echo", "messages": messages} | more
        return self.events("/v1/chat/completions", body)

    def gauges(self) -> dict[str, float]:
        return self.client.get("/server_info").json()["internal_states"][0]

    def wait_for(self, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        """Poll the gauges until they are as wanted; the deadline is a failure."""
        deadline = time.monotonic() + 10
        while not condition(gauges := self.gauges()):
            assert time.monotonic() < deadline, gauges
            time.sleep(0.01)
        return gauges


@contextlib.contextmanager
def launched(tmp_path: Path, *flags: str, env: dict[str, str] | None = None) -> Iterator[Served]:
    command = [sys.executable, "-m", "engine", "serve", "--port", "0", *flags]
    stderr = tmp_path / "stderr"
    with stderr.open("wb") as sink, (tmp_path / "stdout").open("wb") as stdout:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=stdout,
            stderr=sink,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (env or {}),
        )
    try:
        served = Served(process, _url(process, stderr), stderr)
        yield served
        served.client.close()
    finally:
        process.terminate()
        process.wait(timeout=15)
    assert "Traceback" not in stderr.read_text()


def _url(process: subprocess.Popen, stderr: Path) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while "ready on " not in (text := stderr.read_text()):
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.02)
    return text.split("ready on ")[1].split()[0]


@pytest.fixture(scope="session")
def launch(tmp_path_factory):
    """Start a server with flags; it ends with the `with` block."""

    def start(*flags: str, env: dict[str, str] | None = None):
        return launched(tmp_path_factory.mktemp("server"), *flags, env=env)

    return start


@pytest.fixture(scope="session")
def echo(launch):
    """The echo model, as fast as it can."""
    with launch("--model", "echo") as served:
        yield served


@pytest.fixture(scope="session")
def slow(launch):
    """The echo model at 50 tokens a second, one request at a time, one waiting."""
    flags = ("--echo-tokens-per-s", "50", "--max-running-requests", "1")
    with launch("--model", "echo", *flags, "--max-queued-requests", "1") as served:
        yield served


@pytest.fixture(scope="session")
def nano(launch):
    """The nano checkpoint."""
    with launch("--model", "engine/checkpoints/nano", "--kernels", "torch") as served:
        yield served
