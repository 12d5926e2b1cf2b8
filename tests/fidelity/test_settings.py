"""Where each setting comes from, and what is refused instead of guessed."""

import argparse

import pytest

from fidelity.config.options import (
    DIALECT_NAMES,
    OPTIONS,
    add_cli_options,
    add_pytest_options,
    cli_flags,
    to_pytest_args,
)
from fidelity.config.settings import SETTING_FIELDS, resolve
from fidelity.dialects import DIALECTS
from fidelity.errors import ConfigError
from fidelity.words import Budget, Traffic

TOML = """
default = "local"

[harness]
seed = 5
timeout_s = 30
allow = ["load"]

[request]
temperature = 0.7

[deployments.local]
base_url = "http://127.0.0.1:8000/v1"
timeout_s = 40
allow = ["load", "disruptive"]
api_key_env = "LOCAL_KEY"

[deployments.launched]
launch = ["{python}", "-m", "srv", "{port}"]
"""
ENV = {"LOCAL_KEY": "local-key-123"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "fidelity.toml").write_text(TOML)
    return tmp_path


def _origins(settings):
    return {setting.name: setting.origin for setting in settings.settings}


def test_every_option_is_a_field_of_settings():
    assert {option.dest for option in OPTIONS} <= SETTING_FIELDS


def test_the_dialects_of_the_options_are_those_that_exist():
    assert set(DIALECT_NAMES) == {dialect.name for dialect in DIALECTS}


def test_the_documented_names_exist():
    names = {option.name for option in OPTIONS}
    documented = (
        "base-url model deployment budget run-dir resume golden patch checkpoint inputs"
        " launch-arg seed device allow"
    )
    assert set(documented.split()) <= names


def test_flag_beats_environment_beats_deployment_beats_file_beats_default(folder):
    env = ENV | {"FIDELITY_SEED": "6", "FIDELITY_BUDGET": "deep"}
    settings = resolve({"seed": "7"}, environ=env, cwd=folder)
    origins = _origins(settings)
    assert (settings.seed, origins["seed"]) == (7, "flag --seed")
    assert (settings.budget, origins["budget"]) == (Budget.DEEP, "environment FIDELITY_BUDGET")
    assert settings.timeout_s == 40
    assert origins["timeout_s"].startswith("file ")
    assert origins["timeout_s"].endswith("fidelity.toml:14")
    assert (settings.concurrency, origins["concurrency"]) == (4, "default")
    other = resolve({"deployment": "launched"}, environ={}, cwd=folder)
    assert (other.timeout_s, other.seed) == (30, 5)
    assert _origins(other)["seed"].endswith("fidelity.toml:5")


def test_the_default_deployment_is_measured_and_the_first_line_says_so(folder):
    settings = resolve({}, environ=ENV, cwd=folder)
    assert settings.target.name == "local"
    assert settings.measured.startswith(
        "measuring deployment 'local' (http://127.0.0.1:8000/v1), chosen by file "
    )


def test_the_file_is_found_from_a_folder_below(folder):
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    assert resolve({}, environ=ENV, cwd=below).target.name == "local"


@pytest.mark.parametrize(
    ("flags", "env", "url", "chosen"),
    [
        (
            {"base_url": "http://a/v1/"},
            {"FIDELITY_DEPLOYMENT": "local"},
            "http://a/v1",
            "flag --base-url",
        ),
        ({}, {"FIDELITY_BASE_URL": "http://b/v1"}, "http://b/v1", "environment FIDELITY_BASE_URL"),
        ({}, {"OPENAI_BASE_URL": "http://c/v1"}, "http://c/v1", "environment OPENAI_BASE_URL"),
        (
            {"deployment": "local"},
            {"FIDELITY_BASE_URL": "http://b/v1", "OPENAI_BASE_URL": "http://c/v1"} | ENV,
            "http://127.0.0.1:8000/v1",
            "flag --deployment",
        ),
    ],
)
def test_the_first_source_that_names_a_target_wins(folder, flags, env, url, chosen):
    settings = resolve(flags, environ=env, cwd=folder)
    assert (settings.target.base_url, settings.base_url) == (url, url)
    assert _origins(settings)["target"] == chosen


def test_a_given_url_gets_passive_traffic_whatever_the_file_allows(folder):
    settings = resolve({"base_url": "http://a/v1"}, environ={}, cwd=folder)
    assert settings.allow == (Traffic.PASSIVE,)
    assert settings.target.request.sampling == {"temperature": 0.7}
    flag = {"base_url": "http://a/v1", "allow": ["load,disruptive"]}
    allowed = resolve(flag, environ={}, cwd=folder)
    assert set(allowed.allow) == set(Traffic)


def test_the_openai_key_goes_to_a_given_url_and_to_no_deployment_of_the_file(folder):
    env = ENV | {"OPENAI_API_KEY": "sk-openai"}
    given = resolve({"base_url": "http://a/v1"}, environ=env, cwd=folder)
    assert (given.api_key, given.api_key_env) == ("sk-openai", "OPENAI_API_KEY")
    assert _origins(given)["api_key_env"] == "environment OPENAI_API_KEY"
    assert resolve({}, environ=env, cwd=folder).api_key == "local-key-123"
    assert resolve({"deployment": "launched"}, environ=env, cwd=folder).api_key is None


def test_no_key_is_ever_shown():
    env = {"K": "sk-shown-nowhere"}
    flags = {"base_url": "http://a/v1", "api_key_env": "K", "launch_arg": ["--api-key=abc123"]}
    settings = resolve(flags, environ=env, cwd=None)
    shown = repr(settings.settings) + settings.measured
    assert "sk-shown-nowhere" not in shown + repr(settings)
    assert "abc123" not in shown
    assert settings.redactor.text("a sk-shown-nowhere b abc123") == "a [redacted] b [redacted]"


@pytest.mark.parametrize(
    ("flags", "env", "said"),
    [
        ({"seed": "x"}, {}, "flag --seed: expected a whole number from 0 to .*, found 'x'"),
        (
            {"budget": "quik"},
            {},
            "one of quick, standard, deep, found 'quik' .*did you mean 'quick'",
        ),
        ({"timeout_s": "nan"}, {}, "expected seconds from 0.01 to 86400, found 'nan'"),
        ({"allow": ["load,loud"]}, {}, "expected one of passive, load, disruptive, found 'loud'"),
        ({"concurrency": "0"}, {}, "expected a whole number from 1 to 256, found '0'"),
        ({}, {"FIDELITY_SEED": "1.5"}, "environment FIDELITY_SEED: expected a whole number"),
        ({}, {"FIDELITY_SEEED": "1"}, "unknown environment variable FIDELITY_SEEED; did you mean"),
        ({"deployment": "locl"}, {}, "unknown deployment 'locl' .*did you mean 'local'"),
        ({"base_url": "ftp://a"}, {}, "expected an http or https URL .*found 'ftp://a'"),
        ({"base_url": "http://me:pw@a/v1"}, {}, "expected an http or https URL without user"),
        ({"base_url": "http://a/v1?key=1"}, {}, "expected an http or https URL without user"),
        ({"base_url": "http://a:x/v1"}, {}, "expected an http or https URL"),
        ({"base_url": "http://a/v1", "deployment": "local"}, {}, "both a base URL .*and a deploy"),
        ({"api_key_env": "sk-abc.def"}, {}, "the name of an environment variable"),
        ({"base_url": "http://a/v1", "api_key_env": "K"}, {}, "from K, which is not set: export K"),
        (
            {"base_url": "http://a/v1", "api_key_env": "K"},
            {"K": "a\nb"},
            "no HTTP header can carry",
        ),
        ({"config": "nowhere.toml"}, {}, "cannot read .*nowhere.toml: No such file"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(folder, flags, env, said):
    with pytest.raises(ConfigError, match=said):
        resolve(flags, environ=ENV | env, cwd=folder)


def test_a_mistaken_key_in_place_of_its_name_is_not_repeated():
    with pytest.raises(ConfigError) as caught:
        resolve({"api_key_env": "sk-proj-abcdef"}, environ={})
    assert "sk-proj" not in str(caught.value)


def test_without_anything_to_measure_the_ways_to_say_it_are_named(tmp_path):
    with pytest.raises(ConfigError, match="pass --fidelity-base-url URL/v1"):
        resolve({}, environ={}, cwd=tmp_path)


def test_repeated_and_spread_options_come_from_flag_and_environment(folder):
    env = {"FIDELITY_LAUNCH_ARG": "a 'index_keys=int4, row'", "FIDELITY_ALLOW": "load, disruptive"}
    settings = resolve({"deployment": "launched"}, environ=env, cwd=folder)
    assert settings.launch_arg == ("a", "index_keys=int4, row")
    assert set(settings.allow) == set(Traffic)
    flags = {"deployment": "launched", "launch_arg": ["--fault=x y", "--a,b"]}
    assert resolve(flags, environ={}, cwd=folder).launch_arg == ("--fault=x y", "--a,b")


def test_flags_of_the_command_line_reach_pytest_word_for_word(folder):
    parser = argparse.ArgumentParser()
    add_cli_options(parser)
    words = ["--launch-arg=--fault=x y", "--launch-arg=-v", "--allow", "load", "--resume"]
    flags = cli_flags(parser.parse_args([*words, "--seed", "3"]))
    carried = to_pytest_args(flags)
    assert carried == [
        "--fidelity-resume",
        "--fidelity-launch-arg=--fault=x y",
        "--fidelity-launch-arg=-v",
        "--fidelity-seed=3",
        "--fidelity-allow=load",
    ]
    again = argparse.ArgumentParser()
    add_pytest_options(_Group(again))
    read = vars(again.parse_args(carried))
    assert read["fidelity_launch_arg"] == ["--fault=x y", "-v"]


class _Group:
    def __init__(self, parser):
        self.addoption = parser.add_argument


def test_ci_facts_come_from_the_environment(tmp_path):
    env = {"NO_COLOR": "1", "CI": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "s.md")}
    settings = resolve({"base_url": "http://a/v1"}, environ=env)
    assert (settings.no_color, settings.ci) == (True, True)
    assert settings.step_summary == tmp_path / "s.md"


@pytest.mark.parametrize(
    ("name", "value"),
    [("patch", ["index_keys=int4"]), ("inputs", "dumps"), ("device", "cuda")],
)
def test_a_setting_of_the_microtests_is_refused_by_claims(tmp_path, name, value):
    flags = {"base_url": "http://127.0.0.1:9/v1", "model": "x", name: value}
    with pytest.raises(ConfigError, match=rf"{name} \(flag .*only microtests"):
        resolve(flags, environ={}, cwd=tmp_path)


GOLDEN = """
default = "mine"
[deployments.mine]
base_url = "http://a/v1"
[deployments.stock]
base_url = "http://b/v1"
model = "stock-model"
api_key_env = "STOCK_KEY"
dtype = "float16"
allow = ["disruptive"]
"""


class TestGolden:
    def resolved(self, tmp_path, golden, env=None, **flags):
        (tmp_path / "fidelity.toml").write_text(GOLDEN)
        env = {"STOCK_KEY": "stock-secret-1234"} if env is None else env
        return resolve({"golden": golden, **flags}, environ=env, cwd=tmp_path)

    def test_a_name_brings_its_own_model_key_and_dtype(self, tmp_path):
        settings = self.resolved(tmp_path, "stock", model="my-model", launch_arg=["--x"])
        golden = settings.beside
        assert (golden.target.name, golden.model) == ("stock", "stock-model")
        assert (golden.api_key, golden.dtype) == ("stock-secret-1234", "float16")
        assert (settings.model, settings.api_key, settings.dtype) == ("my-model", None, None)
        assert golden.launch_arg == ()

    def test_it_gets_passive_traffic_whatever_the_file_allows(self, tmp_path):
        settings = self.resolved(tmp_path, "stock", allow=["load,disruptive"])
        assert settings.beside.allow == (Traffic.PASSIVE,)

    def test_the_caps_of_the_run_are_its_caps(self, tmp_path):
        settings = self.resolved(tmp_path, "stock", max_tokens="500", concurrency="2")
        assert (settings.beside.max_tokens, settings.beside.concurrency) == (500, 2)

    def test_a_url_gets_no_key_that_was_meant_for_another_server(self, tmp_path):
        env = {"OPENAI_API_KEY": "key-of-the-subject"}
        settings = self.resolved(tmp_path, "http://c:1/v1", env=env, base_url="http://d/v1")
        assert settings.api_key == "key-of-the-subject"
        assert (settings.beside.api_key, settings.beside.target.base_url) == (None, "http://c:1/v1")

    def test_its_key_never_reaches_the_disk(self, tmp_path):
        settings = self.resolved(tmp_path, "stock")
        assert settings.redactor.text("x stock-secret-1234 y") == "x [redacted] y"
        assert "stock-secret-1234" not in repr(settings)

    def test_an_unknown_name_is_refused(self, tmp_path):
        with pytest.raises(ConfigError, match="stok"):
            self.resolved(tmp_path, "stok")

    def test_without_one_there_is_none(self):
        assert resolve({"base_url": "http://a/v1"}, environ={}).beside is None


def test_a_budget_has_caps_that_flags_and_deployments_beat(tmp_path):
    (tmp_path / "fidelity.toml").write_text(
        "default = 'a'\n[budgets.standard]\nmax_tokens = 5\nmax_requests = 6\n"
        "[harness]\nmax_requests = 7\n[deployments.a]\nbase_url = 'http://a/v1'\nmax_tokens = 8\n"
        "[deployments.b]\nbase_url = 'http://b/v1'\n"
    )

    def caps(**flags):
        found = resolve(flags, environ={}, cwd=tmp_path)
        return found.max_tokens, found.max_requests

    assert caps() == (8, 7)
    assert caps(budget="standard") == (8, 6)
    assert caps(budget="standard", deployment="b") == (5, 6)
    assert caps(budget="standard", deployment="b", max_tokens="9") == (9, 6)
