"""Every way in which a server fails ends as one sentence that names the URL and what to do."""

import time

import pytest
from clients import client_of
from hostile_server import BEHAVIOURS, MODEL, HostileServer

from fidelity.errors import EndpointError, Overloaded

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "Hello"}]

# behaviour -> what the sentence must say was seen, and what to do about it
SENTENCES = {
    "wrong_key": ("answered 401", "name its variable with --fidelity-api-key-env"),
    "unknown_model": ("answered 404", "name another by --fidelity-model"),
    "not_found": ("answered 404", "correct the base URL"),
    "server_error": ("answered 500", "look at its log"),
    "redirect": ("answered 307", "give the URL that it redirects to"),
    "bad_request": ("answered 400", "look at its log and at the request profile"),
    "html": ("web page instead of JSON", "correct the base URL"),
    "not_json": ("not JSON: 'hello there'", "compare the server with the OpenAI API"),
    "deep_json": ("not JSON", "compare the server with the OpenAI API"),
    "no_choices": ("no choices", "compare the server with the OpenAI API"),
    "wrong_types": ("usage is 'much', not an object", "compare the server"),
    "negative_usage": ("usage.prompt_tokens is -7", "compare the server"),
    "false_encoding": ("not in the encoding that its header names", ""),
    "invalid_utf8_body": ("not UTF-8", "compare the server with the OpenAI API"),
    "invalid_utf8": ("broken event stream: an event is not UTF-8", "look at the server's log"),
    "lone_surrogate": ("unpaired surrogate", "compare the server with the OpenAI API"),
    "broken_json": ("broken event stream: not JSON", "look at the server's log"),
    "cut_stream": ("cut before the answer ended", "look at the server's log"),
    "no_end": ("without [DONE] or a finish_reason", "look at the server's log"),
    "error_in_stream": ("error inside the stream: 'CUDA error'", "look at the server's log"),
    "server_abort": ("finish_reason 'abort'", "look at its log"),
    "silent_headers": ("did not end within", "raise --fidelity-timeout-s"),
    "silent_stream": ("silent for 0 s after 0 chunks", "look at the server's log"),
    "silent_middle": ("silent for 0 s after 1 chunks", "look at the server's log"),
    "heartbeats": ("silent for 0 s after 0 chunks", "look at the server's log"),
    "endless": ("chunks for max_tokens and no end", "look at the server's log"),
    "endless_slow": ("did not end within", "raise --fidelity-timeout-s"),
    "no_answer": ("cut before the answer ended", "look at the server's log"),
    "not_http": ("cut before the answer ended", "look at the server's log"),
}
STREAMS_ONLY = {"negative_usage", "lone_surrogate"}
TOLERATED = {
    "healthy",
    "crlf",
    "byte_by_byte",
    "split_surrogates",
    "done_without_blank_line",
    "finish_without_done",
    "json_for_stream",
}
ELSEWHERE = {name for name in BEHAVIOURS if name.startswith("busy")} | {"big_body", "endless_line"}


def test_every_behaviour_is_tested():
    assert set(BEHAVIOURS) == set(SENTENCES) | TOLERATED | ELSEWHERE


@pytest.mark.parametrize("name", sorted(SENTENCES))
async def test_trouble_is_one_sentence_with_the_url_and_what_to_do(name):
    seen, advice = SENTENCES[name]
    started = time.monotonic()
    with HostileServer(name) as server:
        async with client_of(server.base_url) as client:
            with pytest.raises(EndpointError) as caught:
                await client.chat(HELLO, max_tokens=4)
        said = str(caught.value)
        assert seen in said
        assert advice in said
        assert f"{server.base_url}/chat/completions" in said
        assert server.generations == 1, "a request that may have been executed is never repeated"
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("name", sorted(set(SENTENCES) - STREAMS_ONLY))
async def test_trouble_of_a_one_shot_request_is_an_endpoint_error_too(name):
    with HostileServer(name) as server:
        async with client_of(server.base_url) as client:
            with pytest.raises(EndpointError, match="/v1/completions"):
                await client.complete("Hello", max_tokens=4, stream=False)


async def test_an_unreachable_server_is_an_endpoint_error():
    async with client_of("http://127.0.0.1:9/v1") as client:
        with pytest.raises(EndpointError, match="cannot connect: start the server or correct"):
            await client.chat(HELLO, max_tokens=4)


async def test_a_body_without_end_is_cut_at_the_bound():
    with HostileServer("big_body") as server:
        async with client_of(server.base_url, idle_s=20, max_body_bytes=1 << 21) as client:
            with pytest.raises(EndpointError, match="answers with more than 2097152 bytes"):
                await client.raw("POST", "/chat/completions", {"model": MODEL})


async def test_a_line_without_end_is_cut_at_the_bound(monkeypatch):
    monkeypatch.setattr("fidelity.endpoint.sse.MAX_LINE_BYTES", 1 << 21)
    monkeypatch.setattr(
        "fidelity.endpoint.stream_reader.SseParser", lambda: _parser(max_line_bytes=1 << 21)
    )
    with HostileServer("endless_line") as server:
        async with client_of(server.base_url, idle_s=20) as client:
            with pytest.raises(EndpointError, match="a line is longer than 2097152 bytes"):
                await client.chat(HELLO, max_tokens=4)


def _parser(**bounds):
    from fidelity.endpoint.sse import SseParser

    return SseParser(**bounds)


async def test_a_key_that_the_server_repeats_stays_out_of_the_sentence():
    with HostileServer("wrong_key") as server:
        async with client_of(server.base_url, key="sk-very-secret-42", key_env="MY_KEY") as client:
            with pytest.raises(EndpointError) as caught:
                await client.chat(HELLO, max_tokens=4)
        assert server.requests[0].headers["authorization"] == "Bearer sk-very-secret-42"
    assert "sk-very-secret-42" not in str(caught.value)
    assert "the key in MY_KEY is refused" in str(caught.value)


@pytest.mark.parametrize("name", ["crlf", "byte_by_byte"])
async def test_unusual_framing_gives_the_same_answer(name):
    with HostileServer(name) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=4)
    assert (reply.text, reply.finish_reason) == ("The séa 🌊", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.chunks) == (5, 2, 2)


@pytest.mark.parametrize(
    ("name", "text", "finish"),
    [
        ("split_surrogates", "🌊", "stop"),
        ("done_without_blank_line", "The", ""),
        ("finish_without_done", "The", "stop"),
        ("json_for_stream", "The sea is wide", "length"),
        ("healthy", "The sea is wide", "stop"),
    ],
)
async def test_unusual_answers_that_are_right_are_taken(name, text, finish):
    with HostileServer(name) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=4)
    assert (reply.text, reply.finish_reason) == (text, finish)


# ---- overload


@pytest.mark.parametrize(
    "name", ["busy_429_seconds", "busy_429_date", "busy_429", "busy_503", "busy_in_stream"]
)
async def test_overload_is_waited_out(name):
    with HostileServer(name, times=1) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=7)
        assert server.generations == 2
    assert (reply.text, reply.attempts) == ("The sea is wide and blue.", 2)
    assert reply.waited_s > 0.05


@pytest.mark.parametrize("name", ["busy_429", "busy_503", "busy_in_stream"])
async def test_overload_that_lasts_ends_at_the_cap_on_waiting(name):
    started = time.monotonic()
    with HostileServer(name) as server:
        async with client_of(server.base_url, max_wait_s=0.9) as client:
            with pytest.raises(Overloaded, match="the cap on waiting is 1 s") as caught:
                await client.chat(HELLO, max_tokens=4)
            with pytest.raises(Overloaded):
                await client.chat(HELLO, max_tokens=4)
        assert "The request queue is full" in str(caught.value)
        assert server.generations == 3, "the second request fails at its first refusal"
    assert time.monotonic() - started < 4


async def test_a_retry_after_beyond_the_cap_is_not_waited_for():
    started = time.monotonic()
    with HostileServer("busy_429_seconds", after="3600") as server:
        async with client_of(server.base_url, max_wait_s=5.0) as client:
            with pytest.raises(Overloaded, match="asks to wait 3600 s"):
                await client.chat(HELLO, max_tokens=4)
        assert server.generations == 1
    assert time.monotonic() - started < 2


async def test_a_status_that_was_allowed_is_a_reply_and_not_waited_out():
    with HostileServer("busy_503") as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=4, allow_status={503})
    assert (reply.status, reply.text, reply.attempts) == (503, "", 1)
    assert reply.raw == {"error": {"message": "The request queue is full.", "code": 503}}
