"""The proxies do what they say, in front of the engine's echo model."""

import anyio
import pytest
from clients import client_of
from proxies import (
    ChunkMergingProxy,
    RateLimitingProxy,
    RecordingProxy,
    RoundRobinProxy,
    ThinkOnlyProxy,
    UpstreamServer,
)

from fidelity.config.settings import resolve
from fidelity.deployment.deployment import open_deployment
from fidelity.errors import EndpointError

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "one two three four five six seven eight nine ten"}]


@pytest.fixture(scope="module")
def echo():
    with UpstreamServer("--model=echo", "--echo-tokens-per-s=200") as server:
        yield server


async def _ask(base_url, **options):
    async with client_of(base_url, model="echo", dialect="engine", idle_s=10) as client:
        return await client.chat(HELLO, max_tokens=24, **options)


async def test_a_recording_proxy_changes_nothing_and_keeps_everything(echo):
    plain = await _ask(echo.base_url)
    with RecordingProxy(echo.root_url) as proxy:
        through = await _ask(proxy.base_url)
        assert proxy.generations[0].json["messages"] == HELLO
    assert plain.text != ""
    assert (through.text, through.chunks) == (plain.text, plain.chunks)
    assert through.completion_tokens == plain.completion_tokens


async def test_merged_chunks_hold_the_same_text_in_fewer_deltas(echo):
    plain = await _ask(echo.base_url, top_logprobs=1)
    with ChunkMergingProxy(echo.root_url, size=5) as proxy:
        merged = await _ask(proxy.base_url, top_logprobs=1)
    assert merged.text == plain.text
    assert merged.chunks <= plain.chunks // 4
    assert [entry.token for entry in merged.logprobs] == [entry.token for entry in plain.logprobs]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_only_thinks_has_no_content_and_spends_its_budget(echo, stream):
    plain = await _ask(echo.base_url, stream=stream)
    with ThinkOnlyProxy(echo.root_url) as proxy:
        thought = await _ask(proxy.base_url, stream=stream)
    assert (thought.text, thought.reasoning) == ("", plain.reasoning + plain.text)
    assert thought.finish_reason == "length"


@pytest.mark.parametrize("retry_after", [None, "1"])
async def test_a_rate_limited_server_answers_every_request_in_the_end(echo, retry_after):
    with RateLimitingProxy(echo.root_url, interval_s=0.15, retry_after=retry_after) as proxy:
        async with (
            client_of(
                proxy.base_url, model="echo", dialect="engine", idle_s=10, max_wait_s=30
            ) as client,
            anyio.create_task_group() as group,
        ):
            replies = []

            async def ask():
                replies.append(await client.chat(HELLO, max_tokens=2))

            for _ in range(4):
                group.start_soon(ask)
        assert proxy.refused >= 1
    assert len(replies) == 4
    assert all(reply.completion_tokens == 2 for reply in replies)


async def test_two_replicas_take_turns_and_label_their_answers(echo):
    with RoundRobinProxy(echo.root_url, echo.root_url) as proxy:
        async with client_of(proxy.base_url, model="echo", dialect="engine", idle_s=10) as client:
            seen = [(await client.chat(HELLO, max_tokens=1)).replica for _ in range(4)]
    assert seen == ["0", "1", "0", "1"]


async def test_a_closed_connection_reaches_the_server_through_the_proxy(echo):
    with RecordingProxy(echo.root_url) as proxy:
        async with client_of(proxy.base_url, model="echo", dialect="engine", idle_s=10) as client:
            before = (await client.metrics()).get("sglang:num_aborted_requests_total", 0.0)
            reply = await client.chat(HELLO, max_tokens=400, abort_after_tokens=3)
            with anyio.fail_after(5):
                while True:
                    metrics = await client.metrics()
                    if metrics["sglang:num_running_reqs"] == 0:
                        break
                    await anyio.sleep(0.02)
        assert proxy.wait_until(lambda: len(proxy.closed_early) == 1)
    assert (reply.aborted, reply.finish_reason, reply.chunks) == (True, "", 3)
    after = metrics.get("sglang:num_aborted_requests_total")
    assert after is None or after == before + 1


async def test_discovery_of_a_given_url_is_passive_to_the_letter(echo):
    with RecordingProxy(echo.root_url) as proxy:
        settings = resolve({"base_url": proxy.base_url, "max_tokens": "30_000"}, environ={})
        deployment = await open_deployment(settings, run_dir=None)
        spent = deployment.client.caps.spent
        await deployment.aclose()
        paths = set(proxy.paths())
        assert proxy.most_in_flight == 1
        assert len(proxy.requests) == spent.requests
        # after discovery: what the server says of itself, and of the patches of fidelity.toml
        told = proxy.requests[deployment.capabilities.requests :]
        assert [request.method for request in told] == ["GET"] * len(told)
        assert 1 <= len(told) <= 4
        told = sum(_tokens_told(request) for request in proxy.generations)
    assert not [path for path in paths if "flush" in path or "abort" in path]
    assert {"abort", "flush", "tokenize"} <= {
        n for n, s in deployment.capabilities.items() if s.present
    }
    assert told <= spent.tokens <= 30_000


def _tokens_told(request):
    return len(str(request.json.get("messages", request.json.get("prompt")))) // 8


async def test_discovery_behind_two_replicas_finds_the_cache_of_one_of_them():
    with (
        UpstreamServer() as first,
        UpstreamServer() as second,
        RoundRobinProxy(first.root_url, second.root_url) as proxy,
    ):
        settings = resolve({"base_url": proxy.base_url}, environ={})
        deployment = await open_deployment(settings, run_dir=None)
        await deployment.aclose()
    assert deployment.capabilities.has("prefix_cache")
    assert deployment.capabilities.has("tokenize")
    assert not deployment.capabilities.broken_promises


async def test_two_replicas_that_take_turns_are_no_restart(echo):
    with (
        UpstreamServer("--model=echo") as second,
        RoundRobinProxy(echo.root_url, second.root_url) as proxy,
    ):
        deployment = await open_deployment(resolve({"base_url": proxy.base_url}), run_dir=None)
        client = deployment.client
        for calls in (1, 2, 3, 1, 2):
            await client.check_epoch()
            for _ in range(calls):
                await client.models()
        reasons = client.epochs.reasons
        await deployment.aclose()
    assert reasons == []


async def test_the_embedded_deployment_keeps_every_promise(tmp_path):
    settings = resolve({"deployment": "embedded"})
    deployment = await open_deployment(settings, run_dir=tmp_path)
    try:
        broken = deployment.capabilities.broken_promises
        assert [f"{state.name}: {state.detail}" for state in broken] == []
        assert deployment.launched
        assert deployment.model == "nano"
        await deployment.client.flush_cache()
        port = deployment.process.command.port
    finally:
        await deployment.aclose()
    assert "ready" in (tmp_path / "server.log").read_text()
    async with client_of(f"http://127.0.0.1:{port}/v1") as client:
        with pytest.raises(EndpointError, match="cannot connect"):
            await client.models()
