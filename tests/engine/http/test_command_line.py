"""`python -m engine`: what cannot work ends in one sentence and exit code 2."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from engine.cli import _FLAGS, _LISTS, _config, _parser
from engine.config import EngineConfig

ROOT = Path(__file__).parents[3]


def run(*arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "engine", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | (env or {}),
        check=False,
    )


def ends_in_one_sentence(result):
    assert result.returncode == 2, result
    assert result.stdout == ""
    assert result.stderr.startswith("engine: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


ECHO = ("serve", "--model", "echo", "--port", "0")
CANNOT = {
    "no command": ((), "required"),
    "no model": (("serve",), "--model"),
    "an unknown flag": ((*ECHO, "--colour", "red"), "--colour"),
    "a port that is no number": (("serve", "--model", "echo", "--port", "http"), "http"),
    "a port out of range": (("serve", "--model", "echo", "--port", "70000"), "--port"),
    "a level out of range": ((*ECHO, "--log-requests-level", "4"), "level"),
    "others' network without a key": ((*ECHO, "--host", "0.0.0.0"), "--api-key-env"),
    "every ipv6 address without a key": ((*ECHO, "--host", "::"), "--api-key-env"),
    "a foreign address": ((*ECHO, "--host", "192.0.2.1", "--api-key-env", "K"), "192.0.2.1"),
    "a key that is not set": ((*ECHO, "--api-key-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE"),
    "a log that cannot be written": (
        (*ECHO, "--log-requests", "--log-requests-target", "/nonexistent/log"),
        "/nonexistent/log",
    ),
    "a pace without echo": (
        ("serve", "--model", "x", "--echo-tokens-per-s", "5"),
        "--echo-tokens-per-s",
    ),
    "a pace of zero": ((*ECHO, "--echo-tokens-per-s", "0"), "above 0"),
    "a patch of the echo model": ((*ECHO, "--patch", "x"), "--patch"),
    "a missing checkpoint": (("serve", "--model", "/nonexistent", "--port", "0"), "/nonexistent"),
}


@pytest.mark.parametrize("case", CANNOT, ids=lambda case: case.replace(" ", "_"))
def test_what_cannot_work_ends_in_one_sentence(case):
    arguments, names = CANNOT[case]
    assert names in ends_in_one_sentence(run(*arguments, env={"K": "key"}))


def test_a_busy_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = ends_in_one_sentence(run("serve", "--model", "echo", "--port", str(port)))
    assert f"127.0.0.1:{port}" in error


def test_every_setting_of_the_engine_has_its_flag():
    assert set(_FLAGS) | set(_LISTS) | {"model"} == {field.name for field in fields(EngineConfig)}


def test_flags_reach_the_config_also_where_they_are_zero():
    flags = ["--port", "0", "--seed", "0", "--max-queued-requests", "0", "--default-thinking"]
    lists = ["--patch", "a=1", "--patch", "b"]
    config = _config(_parser().parse_args(["serve", "--model", "a/dir/nano", *flags, *lists]))
    assert (config.port, config.max_queued_requests, config.default_thinking) == (0, 0, True)
    assert config.patches == ("a=1", "b")
    assert config.served_model_name == "nano"


def test_the_faults_are_listed_as_json():
    result = run("faults", "--json")
    assert result.returncode == 0
    for fault in json.loads(result.stdout):
        told = {"name", "kind", "rung", "report", "trigger", "patch", "suites"}
        assert told <= set(fault) <= told | {"launch", "twins", "faint_suites", "faint_twins"}
