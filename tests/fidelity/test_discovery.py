"""What discovery finds on servers of each kind, and that it never disturbs them."""

import pytest
from clients import client_of
from fake_servers import FakeLlamaCpp, FakeServer, FakeSGLang, FakeTransformers, FakeVLLM
from hostile_server import HostileServer

from fidelity.config.deployment_spec import CAPABILITIES
from fidelity.deployment.discovery import discover
from fidelity.errors import CapabilityMissing, ConfigError, EndpointError

pytestmark = pytest.mark.anyio


async def _discover(server, *, model=None, dialect=None, **options):
    keep = options.pop("keep", None)
    async with client_of(server.base_url, model="", idle_s=5, **options) as client:
        found = await discover(client, model=model, dialect=dialect, expects=("tokenize",))
        if keep is not None:
            await keep(client)
        return found


def _present(found):
    return {name for name, state in found.items() if state.present}


async def test_vllm_shows_all_that_it_has():
    with FakeVLLM(cached_tokens=True, detokenized="The tide of 1842 rose twice.") as server:
        found = await _discover(server)
    assert found.dialect == "vllm"
    assert (found.version, found.max_model_len) == ("0.32.0", 8192)
    assert set(found) == set(CAPABILITIES)
    missing = {"reasoning", "patches", "abort", "flush", "server_info"}
    assert _present(found) == set(CAPABILITIES) - missing
    assert found["reasoning"].unlock == "--reasoning-parser NAME"
    assert found.requests <= 40


async def test_a_flag_of_the_server_that_would_unlock_more_is_named():
    with FakeVLLM(cached_tokens=False) as server:
        found = await _discover(server)
    assert not found.has("cached_tokens")
    assert not found.has("prefix_cache")
    assert found["cached_tokens"].unlock == "--enable-prompt-tokens-details"
    assert found["prefix_cache"].detail == "usage does not tell cached tokens"


async def test_sglang_is_recognised_and_neither_flushed_nor_aborted():
    with FakeSGLang(cached_tokens=True) as server:
        found = await _discover(server)
        assert server.flushed == 0
        assert not [r for r in server.requests if "flush" in r.path or "abort" in r.path]
    assert (found.dialect, found.version, found.page_size) == ("sglang", "0.5.9", 256)
    assert {"abort", "flush", "tools", "reasoning", "prefix_cache"} <= _present(found)
    assert found["flush"].detail == "POST /flush_cache belongs to the dialect; not called"
    assert found["metrics"].unlock == "--enable-metrics"


async def test_llama_cpp_counts_tokens_by_rendering_first():
    with FakeLlamaCpp() as server:
        found = await _discover(server)
    assert (found.dialect, found.version, found.max_model_len) == ("llamacpp", "b6000-abc", 4096)
    assert found["tokenize"].detail.startswith("agrees with usage (")
    assert {"tokenize", "completions", "stop", "seed", "server_info"} <= _present(found)
    assert not {"abort", "flush", "logprobs", "metrics"} & _present(found)


async def test_transformers_serve_thinks_inline():
    async def check(client):
        reply = await client.chat([{"role": "user", "content": "x"}], max_tokens=8)
        assert reply.text.startswith(" The sea")
        assert reply.reasoning == " hm "

    with FakeTransformers() as server:
        found = await _discover(server, keep=check)
    assert found.dialect == "transformers"
    assert found["reasoning"].detail.startswith("inline")
    assert "tokenize" not in _present(found)
    assert found.broken_promises == (found["tokenize"],)


async def test_a_plain_server_that_refuses_every_extra_field_is_still_usable():
    refuses = ("logprobs", "stream_options", "seed", "tools")
    with FakeServer(refuses=refuses, completions=False) as server:
        found = await _discover(server)
    assert _present(found) == {"models", "chat", "stream", "stop"}
    assert found["seed"].detail == "refused with 400: Unsupported parameter: seed"
    assert found["logprobs"].detail == "refused with 400: Unsupported parameter: logprobs"


async def test_a_server_that_wants_the_newer_name_of_max_tokens_gets_it():
    async def check(client):
        assert client.server.quirks.max_tokens_field == "max_completion_tokens"

    with FakeServer(refuses=("max_tokens",)) as server:
        assert (await _discover(server, keep=check)).has("chat")


@pytest.mark.parametrize(
    ("knobs", "name", "detail"),
    [
        ({"stop": False}, "stop", "text goes on"),
        ({"seed": False}, "seed", "two answers with one seed differ"),
        ({"stream": False}, "stream", "answered in one piece"),
        ({"usage": False}, "usage", "no usage in the stream"),
        ({"gives_logprobs": False}, "logprobs", "asked for, and not in the answer"),
        ({"cached_tokens": True, "prefix_cache": False}, "prefix_cache", "no hit in 4 equal"),
        ({"detokenized": "Something else"}, "detokenize", "came back as 'Something else'"),
    ],
)
async def test_a_field_that_is_taken_and_ignored_is_no_capability(knobs, name, detail):
    with FakeVLLM(**knobs) as server:
        found = await _discover(server)
    assert not found.has(name)
    assert detail in found[name].detail


async def test_tools_that_are_taken_and_never_rendered_are_no_capability():
    with FakeServer(tools=False) as server:
        found = await _discover(server)
    assert found["tools"].detail == "taken, but never rendered"


@pytest.mark.parametrize("above", [0, 100])
async def test_a_tokenizer_that_contradicts_usage_is_not_believed(above):
    """Above 100 tokens only: a short prompt agrees, and the long one gives it away."""

    async def check(client):
        with pytest.raises(CapabilityMissing, match="one of them lies"):
            await client.tokenize(prompt="a b c")

    with FakeVLLM(lie=3, lie_above=above) as server:
        found = await _discover(server, keep=check)
    assert not found.has("tokenize")
    assert "lies, so lengths are calibrated from usage" in found["tokenize"].detail
    assert found["tokenize"] in found.broken_promises


async def test_the_only_model_is_taken_and_of_several_one_must_be_named():
    with FakeServer(models=["a"]) as server:
        assert (await _discover(server)).models == ("a",)
    with FakeServer(models=["a", "b"]) as server:
        with pytest.raises(ConfigError, match=r"lists 2 models \(a, b\): name one with --fid"):
            await _discover(server)
        assert (await _discover(server, model="b")).has("chat")


async def test_an_unknown_model_is_named_with_those_that_exist():
    with FakeServer(models=["llama-70b"]) as server, pytest.raises(EndpointError) as caught:
        await _discover(server, model="llama-7b")
    said = str(caught.value)
    assert "the model 'llama-7b' is unknown there" in said
    assert said.endswith("the server lists llama-70b, not 'llama-7b'; did you mean 'llama-70b'?")


@pytest.mark.parametrize("name", ["wrong_key", "html", "not_json", "server_error", "no_answer"])
async def test_a_server_that_fails_from_the_first_request_is_an_endpoint_error(name):
    with (
        HostileServer(name, whole_server=True) as server,
        pytest.raises(EndpointError, match="/v1/models"),
    ):
        await _discover(server, model="m")


async def test_discovery_keeps_within_passive_traffic_and_the_caps():
    with FakeVLLM(cached_tokens=True) as server:
        found = await _discover(server, allow=(), max_requests=60, max_tokens=30_000)
    assert found.has("prefix_cache")
