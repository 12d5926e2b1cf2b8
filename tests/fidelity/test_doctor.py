"""The doctor names what is there, what is missing, which flag unlocks it, and what suites cost."""

import io

import anyio
import pytest
from fake_servers import FakeSGLang, FakeVLLM
from rich.console import Console

from fidelity.config.settings import resolve
from fidelity.deployment import doctor
from fidelity.deployment.deployment import open_deployment
from fidelity.deployment.doctor import SuiteCost
from fidelity.errors import EndpointError
from fidelity.words import Traffic


def _examine(server, prices=(), **flags):
    given = {"base_url": server.base_url} | flags
    settings = resolve({k: v for k, v in given.items() if v is not None}, environ={})
    out = io.StringIO()

    async def run():
        deployment = await open_deployment(settings, run_dir=None)
        doctor.render(deployment, settings, prices, Console(file=out, width=200, highlight=False))
        await deployment.aclose()

    anyio.run(run)
    return out.getvalue()


def _row(text, name):
    return next(line for line in text.splitlines() if f" {name} " in line)


def test_each_capability_has_a_row_with_what_unlocks_it():
    with FakeVLLM(cached_tokens=False) as server:
        text = _examine(server)
    assert "model tiny, version 0.32.0" in text
    assert "dialect vllm" in text
    assert "longest context 8,192 tokens" in text
    assert "--enable-prompt-tokens-details" in _row(text, "cached_tokens")
    assert "yes" in _row(text, "prompt_logprobs")


def test_a_suite_that_cannot_run_says_what_would_change_that():
    prices = [
        SuiteCost(suite="needle_sweep", requests=1_200, tokens=360_000, needs=("chat",)),
        SuiteCost(suite="cached_path", requests=10, tokens=100, needs=("chat", "cached_tokens")),
        SuiteCost(suite="storm", requests=1, tokens=1, traffic=frozenset({Traffic.LOAD})),
        SuiteCost(suite="refused", requests=0, tokens=0),
    ]
    with FakeVLLM(cached_tokens=False) as server:
        text = _examine(server, prices)
        allowed = _examine(server, prices, allow=["load"])
    assert "yes" in _row(text, "needle_sweep")
    assert "360,000" in _row(text, "needle_sweep")
    assert "needs cached_tokens (server: --enable-prompt-tokens-details)" in _row(
        text, "cached_path"
    )
    assert "needs --fidelity-allow load" in _row(text, "storm")
    assert "needs --fidelity-allow disruptive,load" in _row(text, "refused")
    assert "yes" in _row(allowed, "storm")


def test_the_doctor_says_which_flag_unlocks_what_and_which_suites_then_run():
    prices = [
        SuiteCost(suite="cached_path", requests=1, tokens=1, needs=("chat", "cached_tokens")),
        SuiteCost(suite="gauges", requests=1, tokens=1, needs=("metrics",)),
        SuiteCost(suite="both", requests=1, tokens=1, needs=("metrics", "cached_tokens")),
    ]
    with FakeSGLang() as server:
        text = _examine(server, prices)
    lines = text[text.index("what would unlock more:") :].splitlines()
    assert "  --enable-cache-report: cached_tokens; then cached_path can run" in lines
    assert "  --enable-metrics: metrics; then gauges can run" in lines
    with FakeSGLang(cached_tokens=True, metrics=True, tokenizer="messages") as server:
        unlocked = _examine(server, prices)
    assert "--enable" not in unlocked


def test_roles_and_patches_are_shown(tmp_path):
    with FakeSGLang() as router, FakeSGLang() as worker:
        (tmp_path / "fidelity.toml").write_text(
            f'[deployments.pd.roles.router]\nurl = "{router.base_url}"\n'
            f'[deployments.pd.roles.decode]\nurl = "{worker.base_url}"\nhost = "gpu7"\n'
            'patches = ["topk"]\n[[patch]]\nname = "topk"\nphase = "decode"\n'
            'active_when = { server_info = "internal_states.0.use_topk_v2", equals = true }\n'
        )
        text = _examine(
            router, base_url=None, deployment="pd", config=str(tmp_path / "fidelity.toml")
        )
    assert "gpu7" in _row(text, worker.base_url)
    assert "server info internal_states.0.use_topk_v2 = True" in _row(text, "topk")


def test_what_a_server_says_is_shown_without_markup_and_control_characters():
    class Loud(FakeSGLang):
        small = {"/server_info": {"model_path": "x", "version": "[bold]\x1b[31m1.0\r\n[/nope]"}}  # noqa: RUF012

    with Loud() as server:
        text = _examine(server)
    assert "version [bold] [31m1.0  [/nope]" in text
    assert "\x1b" not in text


def test_main_prints_and_exits_by_promises(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with FakeVLLM() as server:
        (tmp_path / "fidelity.toml").write_text(
            "default = 'a'\n[deployments.a]\n"
            f"base_url = '{server.base_url}'\nexpects = ['chat', 'reasoning']\n"
        )
        assert doctor.main({}) == doctor.EXIT_BROKEN_PROMISE
        assert doctor.main({"base_url": server.base_url}) == doctor.EXIT_HEALTHY
    printed = capsys.readouterr().out
    assert printed.startswith("fidelity: measuring deployment 'a' (http://127.0.0.1:")
    assert "MISSING" in printed
    assert "promised in fidelity.toml, and not there: reasoning" in printed


def test_a_server_that_is_not_there_is_one_sentence():
    with pytest.raises(EndpointError, match="cannot connect: start the server or correct"):
        doctor.main({"base_url": "http://127.0.0.1:9/v1"})
