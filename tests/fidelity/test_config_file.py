"""fidelity.toml is read strictly: each refusal names file, line, key and what is accepted."""

from pathlib import Path

import pytest

from fidelity.config.config_file import read_config
from fidelity.config.deployment_spec import CAPABILITIES
from fidelity.errors import ConfigError
from fidelity.words import Traffic

GOOD = """\
[deployments.a]
base_url = "http://a/v1"
"""


def _read(tmp_path, text):
    path = tmp_path / "fidelity.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_config(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("defalt = 'a'\n" + GOOD, r"fidelity.toml:1: defalt: unknown key; did you mean 'default'"),
        ("default = 'b'\n" + GOOD, r"fidelity.toml:1: default: no \[deployments.b\]"),
        (GOOD + "readines_path = '/x'\n", r":3: \[deployments.a\] readines_path: unknown key; did"),
        (
            GOOD + "expects = ['logprob']\n",
            r":3: \[deployments.a\] expects: expected a list.*did you mean 'logprobs'",
        ),
        (GOOD + "api_key = 'sk-1'\n", r":3: \[deployments.a\] api_key: .*write api_key_env"),
        (GOOD + "timeout_s = 'soon'\n", r":3: \[deployments.a\] timeout_s: expected seconds"),
        (
            GOOD + "concurrency = true\n",
            r"concurrency: expected a whole number from 1 to 256, found True",
        ),
        (GOOD + "launch = ['x', '{port}']\n", r"has either a launch command or a base_url"),
        ("[deployments.a]\nmodel = 'x'\n", r"has either a launch command or a base_url"),
        ("[deployments.a]\nlaunch = ['x']\n", r":2: .*must take the chosen port as \{port\}"),
        (
            "[deployments.a]\nlaunch = ['x', '{prt}']\n",
            r"unknown placeholder \{prt\}; did you mean 'port'",
        ),
        ("[deployments.a]\nlaunch = 'x {port}'\n", r"launch: expected a list, each a text"),
        ("[deployments.'a b']\nbase_url = 'http://a/v1'\n", r"a deployment's name is letters"),
        (
            "[request]\nheaders = {Authorization = 'Bearer x'}\n",
            r":2: .*Authorization: a secret is not",
        ),
        (
            "[request.headers]\nX-Api-Key = 'x'\n",
            r":2: \[request.headers\] X-Api-Key: a secret is not",
        ),
        (
            "[request.headers_env]\nX-Api-Key = 'sk-9 9'\n",
            r"X-Api-Key: expected the name of an env",
        ),
        (
            "[request]\ntemprature = 1\n",
            r":2: \[request\] temprature: unknown key; did you mean 'temperature'",
        ),
        ("[request]\ntools = [{name = 'x'}]\n", r"tools: expected a list, each an OpenAI tool"),
        ("[harness]\nsede = 1\n", r":2: \[harness\] sede: unknown key; did you mean 'seed'"),
        ("[harness]\nseed = -1\n", r":2: \[harness\] seed: expected a whole number from 0"),
        (
            "[deployments.a.env]\nHF_TOKEN = 'x'\n",
            r"HF_TOKEN: a secret is not written into the file",
        ),
        ("x = [", r"fidelity.toml is not TOML"),
        (b"x = '\xff'", r"fidelity.toml is not TOML"),
    ],
)
def test_each_mistake_is_refused_where_it_stands(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said):
        _read(tmp_path, text)


def test_the_profile_of_a_deployment_lies_on_top_of_the_files(tmp_path):
    config = _read(
        tmp_path,
        """
[request]
temperature = 0.6
top_p = 0.9
system_prompt = "A"
thinking = true
ca = "ca.pem"
headers = { X-Team = "blue" }
headers_env = { X-Token = "TEAM_TOKEN" }
extra_body = { a = 1, nested = { b = [2] } }
tools = [{ type = "function", function = { name = "f" } }]

[deployments.a]
base_url = "http://a/v1"
[deployments.a.request]
temperature = 0
thinking = false
headers = { X-Two = "2" }
extra_body = { a = 3 }
""",
    )
    profile = config.deployments["a"].request
    assert profile.sampling == {"temperature": 0, "top_p": 0.9}
    assert (profile.system_prompt, profile.thinking) == ("A", False)
    assert profile.headers == {"X-Team": "blue", "X-Two": "2"}
    assert profile.headers_env == {"X-Token": "TEAM_TOKEN"}
    assert profile.extra_body == {"a": 3, "nested": {"b": [2]}}
    assert profile.ca == tmp_path / "ca.pem"
    assert len(profile.tools) == 1
    assert config.request.sampling["temperature"] == 0.6


def test_the_file_of_this_repository_expects_everything_that_the_engine_has():
    config = read_config(Path(__file__).parents[2] / "fidelity.toml")
    embedded = config.deployments["embedded"]
    assert config.default == "embedded"
    assert set(embedded.expects) == set(CAPABILITIES)
    assert set(embedded.overrides["allow"].value) == {Traffic.LOAD, Traffic.DISRUPTIVE}
    assert embedded.launch[:4] == ("{python}", "-m", "engine", "serve")
    assert embedded.cwd == Path(__file__).parents[2]
