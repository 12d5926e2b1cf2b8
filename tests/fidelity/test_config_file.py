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
LAUNCH = """\
[deployments.a]
launch = ["x", "{port}"]
"""
ROLE = "[deployments.a.roles.decode]\n"


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
        (ROLE + "url = 'http://a/v1'\n", r"roles: no router among them"),
        (
            ROLE.replace("decode", "decoder") + "url = 'http://a/v1'\n",
            r":1: \[deployments.a.roles.decoder\] .*'decoder' is no role; did you mean 'decode'",
        ),
        (ROLE, r":1: \[deployments.a.roles.decode\] url: it has either a launch command or a url"),
        (ROLE + "manual = true\n", r"url: it has either"),
        (ROLE + "launch = ['{port}']\nmanual = true\nurl = 'http://a'\n", r"is started by the run"),
        (ROLE + "launch = ['{port}', '{prefil.url}']\n", r"unknown placeholder \{prefil.url\}"),
        (
            ROLE + "launch = ['{port}', '{decode.ulr}']\n",
            r":2: .*unknown placeholder \{decode.ulr\}; did you mean 'decode.url'",
        ),
        (ROLE + "url = 'http://a'\nteardown = ['x']\n", r"teardown: only a server with a launch"),
        (
            ROLE + "launch = ['{port}']\nrestart = ['x']\n",
            r"restart: a server with a launch command is launched again",
        ),
        (ROLE + "teardown_signal = 'SIGTERM'\n", r"one of TERM, .*did you mean 'TERM'"),
        (
            GOOD + "[deployments.a.roles.router]\nurl = 'http://a/v1'\n",
            r"base_url: a deployment with roles has none",
        ),
        (GOOD + "patches = ['b']\n", r":3: \[deployments.a\] patches: no \[\[patch\]\] 'b'"),
        (
            LAUNCH + "patches = ['b']\n[[patch]]\nname = 'b'\n",
            r":3: .*patches: b has no toggle in its \[\[patch\]\]",
        ),
        ("[[patch]]\nphase = 'both'\n", r":1: \[patch.1\] name: a patch has a name"),
        ("[[patch]]\nname = 'b'\n[[patch]]\nname = 'b'\n", r":4: \[patch.2\] name: a second"),
        (
            "[[patch]]\nname = 'b'\n[[patch]]\nname = 'c'\nphase = 'decoding'\n",
            r":5: \[patch.2\] phase: expected one of .*; did you mean 'encoding'",
        ),
        ("[[patch]]\nname = 'b'\nfiles = ['/x']\n", r":3: .*files: a path below .*found '/x'"),
        (
            "[[patch]]\nname = 'b'\nunconditional = true\non = { flags = ['x'] }\n",
            r"unconditional: a patch with a toggle",
        ),
        (
            "[[patch]]\nname = 'b'\n[patch.active_when]\nlog = 'x'\nmetric = 'y'\n",
            r":4: \[patch.1.active_when\] log: one of patches, .*found metric and log",
        ),
        (
            "[[patch]]\nname = 'b'\n[patch.active_when]\nlog = '('\n",
            r":4: .*log: not a regular expression",
        ),
        (
            "[[patch]]\nname = 'b'\nactive_when = { log = 'x', equals = 1 }\n",
            r"equals: says nothing beside `log`",
        ),
        ("[budgets.quik]\nmax_tokens = 3\n", r"quik: no such budget; did you mean 'quick'"),
        ("[budgets.quick]\nconcurrency = 3\n", r":2: .*concurrency: unknown key"),
        ("[gate]\ndeployment = 'b'\n", r":2: \[gate\] deployment: no \[deployments.b\]"),
        ("[gate]\nbaselin = 'b'\n", r"baselin: unknown key; did you mean 'baseline'"),
        ("\nx = [", r"fidelity.toml:2 is not TOML"),
        ("x = 1\ny = = 1", r"fidelity.toml:2 is not TOML: Invalid value \(column 5\)"),
        (b"\nx = '\xff'", r"fidelity.toml:2 is not UTF-8"),
        (GOOD + f"max_tokens = {'9' * 5000}\n", r":3: max_tokens: a number too long"),
        (GOOD + f"max_tokens = 0x{'f' * 5000}\n", r":3: .*max_tokens: .*found a far larger number"),
        (GOOD + f"timeout_s = {'9' * 400}\n", r":3: .*timeout_s: expected seconds"),
        (GOOD + f"x = {'[' * 3000}\n", r":3: x: nested too deep"),
        (
            f"{GOOD}[deployments.a.request.extra_body]\n{'.'.join('a' * 200)} = 1\n",
            r":4: .*nested too deep",
        ),
        ('[deployments.a]\nlaunch = ["x\\u0000", "{port}"]\n', r":2: .*launch: .*a NUL character"),
        (LAUNCH + 'env = { A = "\\u0000" }\n', r":3: .*A: .*a NUL character"),
        (LAUNCH + 'env = { "A=B" = "1" }\n', r":3: .*A=B: expected the name of a variable"),
        ("[request]\nheaders = { X = 'ä' }\n", r":2: .*X: .*no HTTP header can carry"),
        ("[request]\nheaders = { 'X Y' = 'a' }\n", r":2: .*X Y: expected the name of a header"),
        ("[request]\ntop_p = 7\n", r":2: .*top_p: expected a number above 0 to 1, found 7"),
        ("[request]\ntemperature = nan\n", r":2: .*temperature: .*found nan"),
        ("[request]\ntop_k = 1.5\n", r":2: .*top_k: .*not a whole number"),
        ("[request]\nextra_body = { messages = [] }\n", r":2: .*messages: .*the run sets it"),
        ("[request]\nextra_body = { top_p = 1 }\n", r":2: .*top_p: .*a key of its own"),
        ("[request]\nextra_body = { d = 2020-01-01 }\n", r":2: .*d: expected anything that JSON"),
        (LAUNCH + "teardown = ['x', '{PORT}']\n", r"\{PORT\}; did you mean 'port'"),
        (
            "[[patch]]\nname = 'b'\non = { flags = ['b={vlaue}'] }\n",
            r":3: .*flags: unknown placeholder \{vlaue\}; did you mean 'value'",
        ),
        (
            LAUNCH + "patches = ['b']\n[[patch]]\nname = 'b'\non = { flags = ['b={value}'] }\n",
            r":3: .*patches: b takes a value: write b=VALUE",
        ),
        (
            "[[patch]]\nname = 'b'\n[patch.active_when]\nlog = 'x'\nrole = 'dcode'\n",
            r":5: .*role: no role 'dcode'; did you mean 'decode'",
        ),
        (  # a header inside a text takes no blame
            "default = 'a'\n"
            + GOOD
            + '[deployments.a.request]\nsystem_prompt = """\n[deployments.a]\ntimeout_s = 1\n"""\n'
            + "[deployments.b]\nbase_url = 'http://b'\n[deployments.a.roles]\nx = 1\n",
            r":12: \[deployments.a.roles\] x: expected a table",
        ),
        (
            "[deployments.b]\nlaunch = [\n'{port}',\n'[deployments.a]',\n]\n"
            + GOOD
            + "timeout_s = 'x'\n",
            r":8: \[deployments.a\] timeout_s: expected seconds",
        ),
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


PATCHED = """
[[patch]]
name = "a"
on = { flags = ["--a", "{value}"] }
off = { flags = ["--no-a"], env = { A = "0" } }
[[patch]]
name = "b"
on = { env = { B = "{value}" } }
[[patch]]
name = "c"
unconditional = true
[deployments.x]
launch = ["serve", "{port}"]
patches = ["a=3", "c"]
[deployments.y]
launch = ["serve", "{port}"]
patches = []
[deployments.z]
launch = ["serve", "{port}"]
[deployments.r]
patches = ["b=1"]
env = { ALL = "1" }
teardown_grace_s = 3
[deployments.r.roles.decode]
launch = ["serve", "{port}", "{router.url}"]
patches = ["a=2"]
[deployments.r.roles.router]
launch = ["route", "{port}"]
env = { OWN = "1" }
"""


def test_patches_that_are_on_are_switched_on_and_all_others_off(tmp_path):
    found = _read(tmp_path, PATCHED).deployments
    assert (found["x"].toggle_args, found["x"].toggle_env) == (("--a", "3"), {})
    assert (found["y"].toggle_args, found["y"].toggle_env) == (("--no-a",), {"A": "0"})
    assert (found["z"].toggle_args, found["z"].patches) == ((), None)
    decode, router = found["r"].roles["decode"], found["r"].roles["router"]
    assert (decode.toggle_args, decode.patches) == (("--a", "2"), ("a=2",))
    assert (router.toggle_args, router.toggle_env) == (("--no-a",), {"A": "0", "B": "1"})


def test_roles_inherit_what_the_deployment_says_and_keep_their_order(tmp_path):
    spec = _read(tmp_path, PATCHED).deployments["r"]
    assert list(spec.roles) == ["decode", "router"]
    assert spec.front is spec.roles["router"]
    assert spec.front.env == {"ALL": "1", "OWN": "1"}
    assert spec.front.teardown_grace_s == 3
    assert spec.front.name == "r/router"


def test_gate_and_budgets_are_read(tmp_path):
    config = _read(
        tmp_path,
        GOOD + "[budgets.deep]\nmax_tokens = 7\n[gate]\nbase = 'main'\nbaseline = 'b.json'\n"
        "deployment = 'a'\nbudget = 'deep'\nsuites = ['plumbing']\nmicrotest_s = 60\n",
    )
    assert config.budgets["deep"]["max_tokens"].value == 7
    assert config.gate.baseline == tmp_path / "b.json"
    assert (config.gate.base, config.gate.budget, config.gate.suites) == (
        "main",
        "deep",
        ("plumbing",),
    )


def test_the_file_of_this_repository_expects_everything_that_the_engine_has():
    config = read_config(Path(__file__).parents[2] / "fidelity.toml")
    embedded = config.deployments["embedded"]
    assert config.default == "embedded"
    assert set(embedded.expects) == set(CAPABILITIES)
    assert set(embedded.overrides["allow"].value) == {Traffic.LOAD, Traffic.DISRUPTIVE}
    assert embedded.launch[:4] == ("{python}", "-m", "engine", "serve")
    assert embedded.cwd == Path(__file__).parents[2]


SECRET = "sk-launchsecret-777"


@pytest.mark.parametrize(
    "text",
    [
        f"[deployments.a]\nlaunch = ['x', '{{port}}', '--api-key', '{SECRET}']\n",
        f"[deployments.a]\nlaunch = ['x', '{{port}}', '--api-key={SECRET}']\n",
        f"[deployments.a]\nlaunch = ['docker', '{{port}}', '-e', 'GITHUB_TOKEN={SECRET}']\n",
        f"[deployments.a]\nlaunch = ['sh', '-c', 'exec x {{port}} --token {SECRET}']\n",
        f"[deployments.a]\nlaunch = ['x', '{{port}}', 'http://u:{SECRET}@h/v1']\n",
        f"{ROLE}launch = ['x', '{{port}}', '--admin-api-key', '{SECRET}']\n",
        f"{LAUNCH}teardown = ['curl', '-H', 'Authorization: Bearer {SECRET}']\n",
        f"{GOOD}restart = ['curl', '-H', 'X-Token: {SECRET}']\n",
        f"{LAUNCH}env = {{ WANDB_KEY = '{SECRET}' }}\n",
        f"{LAUNCH}env = {{ ARGS = '--api-key {SECRET}' }}\n",
        f"[[patch]]\nname = 'b'\non = {{ flags = ['--api-key', '{SECRET}'] }}\n",
        f"[[patch]]\nname = 'b'\noff = {{ env = {{ X_AUTH = '{SECRET}' }} }}\n",
        f"[request]\nheaders = {{ Subscription-Key = '{SECRET}' }}\n",
        f"[request]\nextra_body = {{ api_key = '{SECRET}' }}\n",
        f"[request]\nextra_body = {{ a = {{ token = '{SECRET}' }} }}\n",
        f"[harness]\nlaunch_arg = ['--api-key={SECRET}']\n",
        f"[harness]\napi_key_env = '{SECRET}'\n",
        f"[harness]\nbase_url = 'http://u:{SECRET}@h/v1'\n",
        f"[harness]\nbase_url = 'http://h/v1?key={SECRET}'\n",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(tmp_path, text):
    with pytest.raises(ConfigError, match=r"fidelity.toml:\d: .*(secret|expected)") as caught:
        _read(tmp_path, text)
    assert SECRET not in str(caught.value)


def test_what_only_looks_like_a_secret_is_taken(tmp_path):
    config = _read(
        tmp_path,
        "[deployments.a]\n"
        "launch = ['sh', '-c', 'x {port} --api-key $KEY ${PORT}', '--max-tokens', '9',"
        " '--eos-token', 'x', '--api-key-file', '/run/key']\n"
        "env = { CUDA_VISIBLE_DEVICES = '', TOKENIZERS_PARALLELISM = 'false' }\n"
        "[deployments.a.request]\n"
        "extra_body = { prompt_cache_key = 'a', skip_special_tokens = true }\n",
    )
    assert config.deployments["a"].env["CUDA_VISIBLE_DEVICES"] == ""


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    assert "a" in _read(tmp_path, b"\xef\xbb\xbf" + GOOD.encode()).deployments


def test_suites_are_those_of_the_product_or_files(tmp_path):
    path = tmp_path / "fidelity.toml"
    (tmp_path / "mine.py").touch()
    path.write_text("[gate]\nsuites = ['plumbing', 'mine.py']\n")
    read_config(path, suites=("plumbing",))
    path.write_text("[[patch]]\nname = 'b'\nsuites = ['nedle_sweep']\n")
    with pytest.raises(ConfigError, match=r":3: .*no suite 'nedle_sweep'; did you mean 'needle_s"):
        read_config(path, suites=("plumbing", "needle_sweep"))


def test_encodings_are_those_with_golden_vectors_or_files(tmp_path):
    path = tmp_path / "fidelity.toml"
    path.write_text(GOOD + "encoding = 'mine.json'\n")
    read_config(path, encodings=("deepseek_v4_nano",))
    path.write_text(GOOD + "encoding = 'deepseek_v4_nona'\n")
    with pytest.raises(ConfigError, match=r":3: .*encoding: .*did you mean 'deepseek_v4_nano'"):
        read_config(path, encodings=("deepseek_v4_nano",))
