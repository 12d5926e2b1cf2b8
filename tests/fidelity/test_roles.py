"""A deployment of several processes: started in order, each with a client, all ended together."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from fake_servers import FakeSGLang

from fidelity.config.config_file import read_config
from fidelity.config.redaction import Redactor
from fidelity.config.settings import resolve
from fidelity.deployment.deployment import open_deployment
from fidelity.deployment.servers import Terms, start_servers
from fidelity.errors import ConfigError, LaunchError

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).with_name("small_server.py"))
ENVIRON = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
THREE = f"""
[deployments.pd.roles.prefill]
launch = ["{{python}}", "{SERVER}", "{{port}}", "--print", "prefill {{bootstrap_port}}"]
[deployments.pd.roles.decode]
launch = ["{{python}}", "{SERVER}", "{{port}}", "--slow", "0.3"]
[deployments.pd.roles.router]
launch = [
  "{{python}}", "{SERVER}", "{{port}}", "--requires", "{{decode.url}}/health",
  "--print", "{{prefill.url}} {{prefill.bootstrap_port}} {{decode.host}}:{{decode.port}}",
]
"""


def _spec(tmp_path, text, name="pd"):
    path = tmp_path / "fidelity.toml"
    path.write_text(text)
    return read_config(path).deployments[name]


def _terms(**fields):
    return Terms(**{"environ": ENVIRON, "redactor": Redactor()} | fields)


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_roles_start_in_order_each_ready_before_the_next_and_end_together(tmp_path):
    spec = _spec(tmp_path, THREE)
    servers = await start_servers(spec, _terms(run_dir=tmp_path, extra=("decode:--lines=1",)))
    ports = [process.command.port for process in servers.processes.values()]
    assert list(servers.processes) == ["prefill", "decode", "router"]
    assert servers.front is servers.processes["router"]
    assert all(_listens(port) for port in ports)
    servers.stop()
    assert not any(_listens(port) for port in ports)
    prefill, decode = servers.addresses["prefill"], servers.addresses["decode"]
    said = (tmp_path / "server-router.log").read_text()
    assert said == (
        f"{prefill.root_url} {prefill.bootstrap_port} 127.0.0.1:{decode.words['port']}\n"
    )
    assert (tmp_path / "server-prefill.log").read_text() == f"prefill {prefill.bootstrap_port}\n"
    assert "line 0" in (tmp_path / "server-decode.log").read_text()


async def test_a_role_that_dies_at_start_takes_the_others_with_it(tmp_path):
    text = THREE.replace('"--slow", "0.3"', '"--die", "out of memory"')
    spec = _spec(tmp_path, text.replace('"--print", "prefill', '"--child", "pids", "--print", "p'))
    with pytest.raises(LaunchError, match=r"'pd/decode' ended with status 1.*out of memory"):
        await start_servers(spec, _terms())
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    deadline = time.monotonic() + 5
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        await anyio.sleep(0.02)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_role_is_restarted_at_its_address(tmp_path):
    servers = await start_servers(_spec(tmp_path, THREE), _terms())
    before = servers.processes["decode"]
    await servers.restart("decode")
    after = servers.processes["decode"]
    assert (after.pid != before.pid, after.command) == (True, before.command)
    assert before.exit_status is not None
    servers.stop()
    assert servers.describe().count("has ended") == 3


async def test_a_restart_command_restarts_what_the_run_did_not_launch(tmp_path):
    with FakeSGLang() as other:
        text = (
            f'[deployments.a]\nbase_url = "{other.base_url}"\nreadiness_path = "/v1/models"\n'
            'restart = ["sh", "-c", "echo {port} > restarted; exit $CODE"]\nenv = { CODE = "0" }'
        )
        servers = await start_servers(_spec(tmp_path, text, "a"), _terms())
        await servers.restart()
        assert (tmp_path / "restarted").read_text().strip() == other.base_url.split(":")[2][:-3]
        bad = await start_servers(_spec(tmp_path, text.replace('"0"', '"3"'), "a"), _terms())
        with pytest.raises(LaunchError, match="restart command of 'a' ended with status 3"):
            await bad.restart()
        plain = await start_servers(_spec(tmp_path, text.partition("restart")[0], "a"), _terms())
        with pytest.raises(LaunchError, match="neither a launch nor a restart command"):
            await plain.restart()


async def test_a_manual_server_is_waited_for_and_the_run_says_so(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = (
        f'[deployments.a]\nbase_url = "http://127.0.0.1:{port}/v1"\nmanual = true\nhost = "gpu7"\n'
        "readiness_timeout_s = TIME"
    )
    said = []
    person: list[subprocess.Popen] = []

    def announce(line):
        said.append(line)
        person.append(subprocess.Popen([sys.executable, SERVER, str(port)]))

    try:
        await start_servers(
            _spec(tmp_path, text.replace("TIME", "30"), "a"), _terms(announce=announce)
        )
        assert _listens(port)  # neither started nor ended by the harness
    finally:
        for process in person:
            process.kill()
            process.wait()
    assert len(said) == 1
    assert (
        f"waiting up to 30 s for 'a': start it on gpu7, so that http://127.0.0.1:{port}" in said[0]
    )
    with pytest.raises(LaunchError, match=r"'a' was not ready within 0.3 s"):
        await start_servers(
            _spec(tmp_path, text.replace("TIME", "0.3"), "a"), _terms(announce=said.append)
        )


async def test_a_server_with_a_fixed_address_is_not_launched_beside_another(tmp_path):
    with FakeSGLang() as other:
        text = f'[deployments.a]\nbase_url = "{other.base_url}"\nlaunch = ["sleep", "60"]'
        with pytest.raises(
            LaunchError, match=r"a server answers at http.* before 'a' was launched"
        ):
            await start_servers(_spec(tmp_path, text, "a"), _terms())


TEARDOWN = f"""
[deployments.a]
launch = ["sh", "-c", "setsid {{python}} {SERVER} {{port}} --child pids >&- 2>&- & sleep 0.2"]
teardown = ["sh", "-c", "cat pids > ended; kill $(cut -d' ' -f1 pids)"]
teardown_grace_s = 5
"""


@LINUX
async def test_a_teardown_command_ends_a_server_that_left_its_command(tmp_path):
    servers = await start_servers(_spec(tmp_path, TEARDOWN, "a"), _terms())
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert servers.describe() == ""  # the command ended well; its server goes on
    servers.stop()
    assert (tmp_path / "ended").exists()
    assert not any(_alive(pid) for pid in pids)


HARNESS = """
import os, sys, anyio
from pathlib import Path
from fidelity.config.config_file import read_config
from fidelity.deployment.servers import Terms, start_servers

async def main():
    spec = read_config(Path(sys.argv[1])).deployments[sys.argv[2]]
    servers = await start_servers(spec, Terms(environ={"PATH": "/usr/bin:/bin"}))
    print(*(process.pid for process in servers.processes.values()), flush=True)
    await anyio.sleep(600)

anyio.run(main)
"""


@LINUX
@pytest.mark.parametrize("name", ["pd", "a"])
def test_no_role_outlives_a_killed_harness_and_teardown_still_runs(tmp_path, name):
    _spec(tmp_path, THREE + TEARDOWN)
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path / "fidelity.toml"), name],
        stdout=subprocess.PIPE,
        text=True,
    )
    with harness:
        supervisors = [int(word) for word in harness.stdout.readline().split()]
        children = [
            int(pid)
            for supervisor in supervisors
            for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        ]
        assert len(supervisors) == (3 if name == "pd" else 1)
        harness.send_signal(signal.SIGKILL)
        harness.wait(10)
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in (*supervisors, *children)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (tmp_path / "ended").exists() == (name == "a")
    assert os.getpid() not in children


async def test_workers_have_clients_of_their_own_within_the_caps_of_the_run(tmp_path):
    with FakeSGLang() as router, FakeSGLang() as worker:
        worker.small = {"/server_info": {"model_path": "/worker", "api_key": "s"}}
        (tmp_path / "fidelity.toml").write_text(
            f'[deployments.pd.roles.decode]\nurl = "{worker.base_url}"\nhost = "gpu7"\n'
            f'[deployments.pd.roles.router]\nurl = "{router.base_url}"\n'
        )
        settings = resolve({"deployment": "pd"}, environ={}, cwd=tmp_path)
        deployment = await open_deployment(settings, run_dir=None)
        decode = deployment.roles["decode"]
        assert list(deployment.roles) == ["decode"]
        assert (deployment.base_url, decode.base_url) == (router.base_url, worker.base_url)
        assert (decode.name, decode.model, decode.spec.host) == ("pd/decode", "tiny", "gpu7")
        assert decode.server_info["model_path"] == "/worker"
        assert decode.server_info["api_key"] == "[redacted]"
        before = deployment.client.caps.spent.requests
        reply = await decode.client.chat([{"role": "user", "content": "hi"}], max_tokens=4)
        assert reply.text == "The sea is wide "
        assert deployment.client.caps.spent.requests > before  # one cap for both
        await deployment.aclose()


async def test_arguments_for_a_server_that_is_not_launched_are_refused(tmp_path):
    spec = _spec(tmp_path, '[deployments.a]\nbase_url = "http://127.0.0.1:9/v1"', "a")
    with pytest.raises(ConfigError, match="--launch-arg=--x: deployment 'a' is not launched"):
        await start_servers(spec, _terms(extra=("--x",)))
