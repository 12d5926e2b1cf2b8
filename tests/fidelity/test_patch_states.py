"""A patch is on by what was seen of it, not by what a flag says."""

from types import SimpleNamespace

import anyio
import pytest
from fake_servers import FakeServer, FakeSGLang, FakeVLLM

from fidelity.config.config_file import read_config
from fidelity.config.patch_spec import Condition
from fidelity.config.settings import resolve
from fidelity.deployment.conditions import Seen, proof_of
from fidelity.deployment.deployment import open_deployment
from fidelity.deployment.patch_states import broken_promises, patch_states

LISTED = {
    "a": {"name": "a", "state": "on", "calls": 7, "value": "int4"},
    "inert": {"name": "inert", "state": "on", "calls": 0},
    "untold": {"name": "untold", "state": "on"},
    "c": {"name": "c", "state": "off", "calls": 0},
}
INFO = {"args": {"dtype": "bf16", "on": True, "n": 3}, "states": [{"topk": "v2"}]}


def _seen(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("loading\nusing top-k v2 on rank 0\n")
    return Seen(patches=LISTED, info=INFO, metrics={"calls": 4.0, "zero": 0.0}, logs=(log,))


@pytest.mark.parametrize(
    ("condition", "held"),
    [
        ({"patches": "a"}, True),
        ({"patches": "a", "equals": "int4"}, True),
        ({"patches": "a", "equals": "fp8"}, False),
        ({"patches": "inert"}, False),
        ({"patches": "untold"}, True),
        ({"patches": "c"}, False),
        ({"patches": "nowhere"}, False),
        ({"server_info": "args.dtype", "equals": "bf16"}, True),
        ({"server_info": "args.dtype", "equals": "fp8"}, False),
        ({"server_info": "states.0.topk"}, True),
        ({"server_info": "states.1.topk"}, False),
        ({"server_info": "args.on", "equals": True}, True),
        ({"server_info": "args.n", "equals": True}, False),
        ({"server_info": "args.n", "at_least": 3}, True),
        ({"server_info": "args.dtype", "at_least": 3}, False),
        ({"metric": "calls"}, True),
        ({"metric": "zero"}, False),
        ({"metric": "nowhere"}, False),
        ({"metric": "calls", "at_least": 5}, False),
        ({"log": r"using top-k v\d"}, True),
        ({"log": "using top-k v3"}, False),
    ],
)
def test_a_condition_is_judged_by_what_was_seen(tmp_path, condition, held):
    proof = proof_of(Condition(**condition), _seen(tmp_path))
    assert proof.held is held
    assert proof.words


def test_what_could_not_be_seen_is_neither_on_nor_off(tmp_path):
    seen = Seen(trouble=dict.fromkeys(("patches", "info", "metrics", "log"), "no answer"))
    for condition in ({"patches": "a"}, {"server_info": "a"}, {"metric": "a"}, {"log": "a"}):
        proof = proof_of(Condition(**condition), seen)
        assert (proof.held, proof.words) == (None, "no answer")
    gone = Seen(logs=(tmp_path / "none.log",))
    assert proof_of(Condition(log="a"), gone).held is None


def _open(tmp_path, text, check):
    (tmp_path / "fidelity.toml").write_text(text)
    settings = resolve({"deployment": "a"}, environ={}, cwd=tmp_path)

    async def run():
        deployment = await open_deployment(settings, run_dir=None)
        try:
            found = await patch_states(deployment, settings.file.patches)
            check(deployment, {state.name: state for state in found})
        finally:
            await deployment.aclose()

    anyio.run(run)


PATCHES = """
[[patch]]
name = "info"
phase = "decode"
commit = "0123456789abcdef"
active_when = { server_info = "version", equals = "0.5.9" }
[[patch]]
name = "wrong"
active_when = { server_info = "version", equals = "0.6" }
[[patch]]
name = "cast"
unconditional = true
[[patch]]
name = "elsewhere"
active_when = { log = "x" }
"""


def test_declared_patches_are_told_with_their_proof(tmp_path):
    def check(deployment, states):
        assert set(states) == {"info", "wrong", "cast"}  # nothing says that "elsewhere" is here
        assert (states["info"].state, states["info"].phase) == ("on", "decode")
        assert states["info"].proof == "server info version = 0.5.9"
        assert states["info"].detail.startswith("commit 0123456789ab: ")
        assert (states["wrong"].state, states["cast"].state) == ("off", "unknown")
        assert "unconditional: no `active_when`" in states["cast"].detail
        assert broken_promises(deployment, list(states.values())) == ["patch wrong"]
        assert {state.name for state in deployment.patches} == set(states)

    with FakeSGLang() as server:
        text = f'[deployments.a]\nbase_url = "{server.base_url}"\npatches = ["wrong", "cast"]\n'
        _open(tmp_path, text + PATCHES, check)


def test_a_patch_of_a_worker_is_looked_for_there(tmp_path):
    def check(_, states):
        assert states["info"].state == "off"
        assert states["info"].detail.endswith("decode: server info version = 0.6")
        assert states["log"].state == "on"
        assert "decode: log line 'live'" in states["log"].proof

    with FakeSGLang() as router, FakeSGLang() as worker:
        worker.small = {"/server_info": {"model_path": "/m", "version": "0.6"}}
        (tmp_path / "decode.log").write_text("live\n")
        text = (
            f'[deployments.a.roles.router]\nurl = "{router.base_url}"\n'
            f'[deployments.a.roles.decode]\nurl = "{worker.base_url}"\nlog = "decode.log"\n'
            'patches = ["info", "log"]\n[[patch]]\nname = "log"\nactive_when = { log = "^live" }\n'
        )
        _open(tmp_path, text + PATCHES, check)


def test_a_patch_that_is_on_and_never_ran_is_inert_and_not_off(tmp_path):
    class Listing(FakeServer):
        small = {  # noqa: RUF012
            "/patches": {"patches": [{"name": "a", "state": "on", "calls": 0, "value": "x"}]}
        }

    def check(deployment, states):
        assert (states["a"].state, states["a"].calls, states["a"].inert) == ("on", 0, True)
        assert (states["b"].state, states["b"].proof) == ("off", "")
        assert broken_promises(deployment, list(states.values())) == ["patch b"]

    with Listing() as server:
        text = (
            f'[deployments.a]\nbase_url = "{server.base_url}"\npatches = ["a", "b"]\n'
            'dialect = "engine"\n[[patch]]\nname = "a"\nactive_when = { patches = "a" }\n'
            '[[patch]]\nname = "b"\nactive_when = { patches = "b" }\n'
        )
        _open(tmp_path, text, check)


def test_a_server_that_is_only_a_url_is_not_told_what_the_file_declares(tmp_path):
    (tmp_path / "fidelity.toml").write_text(PATCHES)
    declared = read_config(tmp_path / "fidelity.toml").patches
    with FakeVLLM() as server:
        settings = resolve({"base_url": server.base_url}, environ={}, cwd=tmp_path)

        async def run():
            deployment = await open_deployment(settings, run_dir=None)
            found = await patch_states(deployment, declared)
            await deployment.aclose()
            return found

        assert anyio.run(run) == []


def test_a_deployment_that_is_no_server_has_no_promises():
    assert broken_promises(SimpleNamespace(), []) == []
