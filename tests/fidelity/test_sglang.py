"""SGLang's native API as documented: what is discovered, and what is never sent."""

import anyio
import pytest
from clients import client_of
from fake_servers import FakeSGLang

from fidelity.deployment.discovery import discover
from fidelity.errors import EndpointError, TrafficRefused
from fidelity.probes.calibration import counter_of
from fidelity.words import Traffic

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "tell me of the sea"}]


async def _discovered(client, **options):
    return await discover(client, model=None, dialect=None, **options)


async def test_everything_that_is_documented_is_found():
    with FakeSGLang(cached_tokens=True, metrics=True, tokenizer="messages") as server:
        async with client_of(server.base_url, idle_s=20.0) as client:
            found = await _discovered(client)
            reply = await client.chat(HELLO, max_tokens=2, return_token_ids=True, stream=False)
    assert found.dialect == "sglang"
    wanted = {"token_ids", "tokenize", "metrics", "abort", "flush", "cached_tokens", "server_info"}
    assert wanted <= {name for name, state in found.items() if state.present}
    assert found["metrics"].detail == "2 metrics"  # one of them the queue's gauge
    assert reply.prompt_token_ids == tuple(range(reply.prompt_tokens))  # ids stand in the choice
    assert reply.token_ids == (1, 2)


async def test_a_tokenizer_that_takes_texts_only_is_not_asked_again():
    with FakeSGLang(tokenizer="texts") as server:
        async with client_of(server.base_url, idle_s=20.0) as client:
            found = await _discovered(client)
            before = len([r for r in server.requests if r.path == "/tokenize"])
            count = await counter_of(client).count(HELLO)
    assert not found.has("tokenize")
    assert found["tokenize"].unlock.startswith("a release whose /tokenize takes messages")
    assert not count.exact
    assert len([r for r in server.requests if r.path == "/tokenize"]) == before


async def test_an_abort_names_one_full_random_id_and_harms_no_neighbour():
    with FakeSGLang(slow=True) as server:
        options = {"model": "tiny", "dialect": "sglang", "idle_s": 20.0}
        async with client_of(server.base_url, **options) as client:
            ends = {}

            async def stream(name, **options):
                ends[name] = await client.chat(HELLO, max_tokens=8, **options)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream, "neighbour")
                abort = {"abort_by_call": True, "abort_after_tokens": 3}
                await stream("aborted", traffic=Traffic.DISRUPTIVE, **abort)
        aborts = [r.json for r in server.requests if r.path == "/abort_request"]
        sent = [r.json["rid"] for r in server.requests if r.path.endswith("completions")]
    assert ends["aborted"].aborted
    assert not ends["neighbour"].aborted
    assert len(aborts) == 1
    assert set(aborts[0]) == {"rid"}  # never abort_all
    assert len(aborts[0]["rid"]) >= 32
    assert sum(rid.startswith(aborts[0]["rid"]) for rid in sent) == 1


async def test_nothing_is_aborted_or_flushed_without_leave():
    with FakeSGLang() as server:
        async with client_of(server.base_url, dialect="sglang", allow=()) as client:
            with pytest.raises(TrafficRefused, match="disruptive traffic is not allowed"):
                await client.flush_cache()
            with pytest.raises(TrafficRefused, match="disruptive traffic is not allowed"):
                await client.abort("fid-" + "0" * 32)
        async with client_of(server.base_url, dialect="sglang") as client:
            for rid in ("", "fid-", "fid-" + "0" * 32):  # not one that this client has sent
                with pytest.raises(TrafficRefused, match="only full ids of this run"):
                    await client.abort(rid)
            await client.flush_cache()
        control = [r.path for r in server.requests if "flush" in r.path or "abort" in r.path]
    assert (control, server.flushed) == (["/flush_cache"], 1)


async def test_a_flush_that_a_busy_server_does_not_do_is_trouble_and_no_flush():
    with FakeSGLang() as server:
        server.running["somebody"] = False
        async with client_of(server.base_url, dialect="sglang") as client:
            with pytest.raises(EndpointError, match=r"/flush_cache.*400"):
                await client.flush_cache()
    assert server.flushed == 0


async def test_the_servers_own_key_is_never_shown():
    with FakeSGLang() as server:
        async with client_of(server.base_url, dialect="sglang") as client:
            info = await client.server_info()
    assert info["api_key"] == "[redacted]"
