"""No key reaches disk or screen, whatever the server repeats."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_servers import FakeSGLang

from fidelity.config.redaction import Redactor, is_secret_name, secret_references, secret_values
from fidelity.config.settings import resolve

KEY = "sk-test-0123456789-very-secret"
SERVER_SECRET = "the-servers-own-key"

SUITE = """
from fidelity.probes.probe import Probe, ProbeResult
from fidelity.errors import EndpointError


def probe_of(number):
    async def script(ask):
        reply = await ask.chat([{"role": "user", "content": f"Question {number}"}], max_tokens=9)
        return ProbeResult(ok="sea" in reply.text)
    return Probe(family="echo", key=str(number), script=script)


def test_the_server_speaks_of_the_sea(measure):
    trials = measure.ask([probe_of(number) for number in range(20)])
    measure.rate_at_least(trials, 0.80, title="the sea is named")


def test_a_refused_request_is_an_error(measure):
    async def script(ask):
        await ask.chat([{"role": "user", "content": "refuse me"}], max_tokens=9)
    probes = [Probe(family="refused", key=str(n), script=script) for n in range(3)]
    measure.rate_at_least(measure.ask(probes), 0.80, title="never refused")
"""


class KeyEcho(FakeSGLang):
    """Repeats the client's key and its own wherever a server can."""

    async def handle(self, request, connection):
        self.key = request.headers.get("authorization", "")
        self.small = {
            "/server_info": {
                "model_path": f"/m/{self.key}",
                "version": f"1 {self.key}",
                "api_key": SERVER_SECRET,
                "args": [{"admin_api_key": SERVER_SECRET, "note": self.key}],
            }
        }
        respond, start = connection.respond, connection.start

        async def loud_respond(status, body=b"", headers=None):
            await respond(
                status, body, {"x-replica": self.key, "x-key": self.key, **(headers or {})}
            )

        async def loud_start(status=200, headers=None):
            await start(status, {"x-replica": self.key, "set-cookie": self.key, **(headers or {})})

        connection.respond, connection.start = loud_respond, loud_start
        if b"refuse me" in request.body:
            error = {"message": f"Incorrect API key provided: {self.key}"}
            await connection.respond(401, {"error": error})
            return
        await super().handle(request, connection)

    def answer(self, body):
        return ["The", "sea", "and", self.key]


def _files(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


@pytest.mark.parametrize("extra", [[], ["--fidelity-launch-arg=--api-key=" + KEY]])
def test_no_key_in_a_whole_run_folder_nor_on_the_screen(tmp_path, extra):
    # with an argument for a server that the run does not launch, the run is refused, in words
    suite = tmp_path / "test_sea.py"
    suite.write_text(SUITE)
    environ = {**os.environ, "TEST_KEY": KEY, "OTHER_SECRET": KEY[::-1]}
    with KeyEcho(cached_tokens=True) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", str(suite), "-p", "no:cacheprovider"),
                f"--rootdir={tmp_path}",
                f"--fidelity-base-url={server.base_url}",
                "--fidelity-api-key-env=TEST_KEY",
                f"--fidelity-run-dir={tmp_path / 'run'}",
                *extra,
            ],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        sent = {r.headers.get("authorization") for r in server.requests}
        assert sent == (set() if extra else {f"Bearer {KEY}"})
    files = _files(tmp_path / "run")
    assert tmp_path / "run" / "run.jsonl" in files
    journal = (tmp_path / "run" / "run.jsonl").read_text()
    assert ("The sea and Bearer [redacted]" in journal) is not bool(extra), done.stdout
    assert "TEST_KEY" in journal
    for secret in (KEY, SERVER_SECRET):
        assert secret not in done.stdout + done.stderr
        for file in files:
            assert secret.encode() not in file.read_bytes(), file
    assert done.returncode == 2, done.stdout


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("Authorization", True),
        ("X-Api-Key", True),
        ("api_key", True),
        ("--admin-api-key", True),
        ("HF_TOKEN", True),
        ("Cookie", True),
        ("X-Token", True),
        ("GITHUB_TOKEN", True),
        ("token", True),
        ("X-Auth", True),
        ("Subscription-Key", True),
        ("X-Access-Key", True),
        ("WANDB_KEY", True),
        ("githubToken", True),
        ("CUDA_VISIBLE_DEVICES", False),
        ("max_new_tokens", False),
        ("eos_token", False),
        ("prompt_cache_key", False),
        ("index_keys", False),
        ("--disable-auth", False),
        ("SSH_AUTH_SOCK", False),
        ("--api-key-file", False),
        ("api_key_env", False),
        ("max_tokens", False),
        ("tokenizer", False),
        ("keyboard", False),
    ],
)
def test_names_that_hold_secrets(name, secret):
    assert is_secret_name(name) is secret


def test_arguments_lose_the_values_of_secret_flags():
    redactor = Redactor()
    arguments = ["serve", "--api-key", "abc", "--port", "1", "--password=x", "--secret", "--v"]
    assert redactor.arguments(arguments) == (
        *("serve", "--api-key", "[redacted]", "--port", "1"),
        *("--password=[redacted]", "--secret", "--v"),
    )
    assert secret_values(arguments) == ["abc", "x"]


def test_secrets_are_known_however_they_are_written_into_arguments():
    arguments = [
        *("decode:--api-key", "decode:k1", "-e", "HF_TOKEN=k2", "--env=WANDB_KEY=k3"),
        *("-H", "Authorization: Bearer k4", '{"api_key": "k5"}', "http://u:k6@h/v1?key=k7&a=1"),
        *("exec x --token k8 --port 1 --api-key $K", "--api-key", "$K", "img/x:latest"),
    ]
    assert secret_values(arguments) == [f"k{number}" for number in range(1, 9)]
    assert secret_references(arguments) == ["K", "K"]
    shown = " ".join(Redactor().arguments(arguments))
    assert not any(f"k{number}" in shown for number in range(1, 9))
    assert "http://u:[redacted]@h/v1?key=[redacted]&a=1" in shown


def test_a_token_of_a_logprob_is_no_secret():
    entry = {"token": " the", "api_key": "x", "auth_token": "y"}
    assert Redactor().json(entry) == {
        "token": " the",
        "api_key": "[redacted]",
        "auth_token": "[redacted]",
    }


def test_a_secret_inside_another_leaves_nothing_behind():
    redactor = Redactor(["secret", "secret-and-more", "", "abc"])
    assert redactor.text("a secret-and-more b secret c abc") == "a [redacted] b [redacted] c abc"
    assert "and-more" not in repr(redactor)


def test_a_variable_that_a_command_passes_as_a_key_is_known_however_short_and_named(tmp_path):
    (tmp_path / "fidelity.toml").write_text(
        "default = 'a'\n[deployments.a]\n"
        """launch = ["sh", "-c", 'exec x {port} --api-key "$K1"']\n"""
        "[deployments.b.roles.router]\n"
        "launch = ['sh', '-c', 'exec x {port} --token ${K2}']\n"
    )
    settings = resolve(
        {"golden": "b"}, environ={"K1": "short1", "K2": "short2", "K3": "other3"}, cwd=tmp_path
    )
    shown = settings.redactor.text("short1 short2 other3")
    assert shown == "[redacted] [redacted] other3"
