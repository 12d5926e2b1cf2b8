"""What the client sends, and what it reads."""

import json

import pytest
from clients import client_of
from hostile_server import HostileServer, delta, usage_event
from tiny_http import TinyServer

from fidelity.config.profile import RequestProfile
from fidelity.endpoint.replies import TokenLogprob, TopToken
from fidelity.errors import (
    CapabilityMissing,
    ConfigError,
    EndpointError,
    TrafficRefused,
)

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def stream_of(*events):
    async def handle(request, connection):
        await connection.start()
        for event in events:
            await connection.event(event)
        await connection.event("[DONE]")
        await connection.end()

    return TinyServer(handle)


def body_of(body, status=200):
    async def handle(request, connection):
        await connection.respond(status, body)

    return TinyServer(handle)


# ---- what is sent


async def test_a_plain_question_is_greedy_streamed_and_asks_for_usage():
    with HostileServer() as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=3, seed=7, stop=["x"])
        request = server.requests[0]
    assert request.json == {
        "model": "m",
        "messages": HELLO,
        "max_tokens": 3,
        "temperature": 0.0,
        "seed": 7,
        "stop": ["x"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert request.headers["x-request-id"] == reply.request_id
    assert len(reply.request_id) == 36
    assert reply.prompt_tokens == 5
    assert reply.cached_tokens == 0


async def test_the_profile_goes_with_every_request_and_the_question_wins():
    profile = RequestProfile(
        sampling={"temperature": 0.6, "top_p": 0.9},
        thinking=True,
        reasoning_effort="high",
        extra_body={"chat_template_kwargs": {"a": 1}, "seed": 1},
        headers={"X-Team": "blue"},
        system_prompt="Be brief.",
        tools=(TOOL,),
    )
    with HostileServer() as server:
        async with client_of(server.base_url, profile=profile, dialect="vllm") as client:
            await client.chat(HELLO, max_tokens=1)
            own = [{"role": "system", "content": "Mine."}, *HELLO]
            await client.chat(own, max_tokens=1, temperature=0.0, thinking=False, tools=[])
            await client.chat(HELLO, max_tokens=1, extra={"top_p": 0.5, "seed": 3})
        first, second, third = (request.json for request in server.requests)
        assert {request.headers["x-team"] for request in server.requests} == {"blue"}
    assert first["messages"] == [{"role": "system", "content": "Be brief."}, *HELLO]
    assert (first["temperature"], first["top_p"], first["seed"]) == (0.6, 0.9, 1)
    assert first["chat_template_kwargs"] == {"a": 1, "thinking": True, "enable_thinking": True}
    assert (first["reasoning_effort"], first["tools"]) == ("high", [TOOL])
    assert second["messages"] == own
    assert second["temperature"] == 0.0
    assert second["chat_template_kwargs"]["thinking"] is False
    assert "tools" not in second
    assert (third["top_p"], third["seed"]) == (0.5, 3)


async def test_completions_take_text_and_token_ids():
    with HostileServer() as server:
        async with client_of(server.base_url) as client:
            text = await client.complete("The sea", max_tokens=2)
            await client.complete([1, 2, 3], max_tokens=2, top_logprobs=3, stream=False)
        first, second = (request.json for request in server.requests)
    assert (first["prompt"], second["prompt"]) == ("The sea", [1, 2, 3])
    assert second["logprobs"] == 3
    assert "messages" not in first
    assert text.path == "/completions"


async def test_prompt_logprobs_are_bounded_never_streamed_and_limited_to_the_span():
    answer = {
        "choices": [{"message": {"content": "x"}, "finish_reason": "length"}],
        "prompt_logprobs": [None, {"5": {"logprob": -0.5, "rank": 2, "decoded_token": "a"}}],
    }
    with body_of(answer) as server:
        async with client_of(server.base_url, dialect="engine") as client:
            reply = await client.chat(
                HELLO, max_tokens=1, prompt_logprobs=0, prompt_logprobs_start=1
            )
            long = [{"role": "user", "content": "x" * 40_000}]
            with pytest.raises(TrafficRefused, match="pass the bound of 16384"):
                await client.chat(long, max_tokens=1, prompt_logprobs=0)
        sent = server.requests[0].json
        assert len(server.requests) == 1
    assert (sent["stream"], sent["prompt_logprobs"], sent["prompt_logprobs_start"]) == (False, 0, 1)
    assert reply.prompt_logprobs == (
        None,
        TokenLogprob(
            token="a",
            logprob=-0.5,
            token_id=5,
            rank=2,
            top=(TopToken(token="a", logprob=-0.5, token_id=5),),
        ),
    )


async def test_a_question_that_the_dialect_cannot_ask_is_refused_before_sending():
    with HostileServer() as server:
        async with client_of(server.base_url) as client:
            with pytest.raises(ConfigError, match="'openai' has no way to ask for prompt logprobs"):
                await client.chat(HELLO, max_tokens=1, prompt_logprobs=1)
            with pytest.raises(CapabilityMissing, match="no tokenizer"):
                await client.tokenize(HELLO)
            with pytest.raises(ConfigError, match="cannot be written as JSON"):
                await client.chat([{"role": "user", "content": "\ud800"}], max_tokens=1)
        assert server.requests == []


# ---- what is read


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_read_in_both_spellings(field):
    with stream_of(
        {"choices": [{"delta": {field: "hm "}}]},
        {"choices": [{"delta": {field: "so"}}]},
        delta("yes", "stop"),
    ) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=4)
    assert (reply.reasoning, reply.text, reply.chunks) == ("hm so", "yes", 3)


@pytest.mark.parametrize(
    ("said", "text", "reasoning"),
    [
        ("<think>a</think>\n\nb", "b", "a"),
        ("\n<think>\na", "", "\na"),
        ("a</think>b", "b", "a"),
        ("plain", "plain", ""),
    ],
)
async def test_inline_think_is_split_off_where_the_server_does_so(said, text, reasoning):
    with stream_of(delta(said, "stop")) as server:
        async with client_of(server.base_url) as client:
            whole = await client.chat(HELLO, max_tokens=4)
            client.server.inline_think = True
            split = await client.chat(HELLO, max_tokens=4)
    assert (whole.text, whole.reasoning) == (said, "")
    assert (split.text, split.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("usage", "cached", "reasoning"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 64}}, 64, None),
        ({"prompt_tokens_details": None}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": None}, "cached_tokens": 3}, 3, None),
        ({"prompt_cache_hit_tokens": 12}, 12, None),
        ({"reasoning_tokens": 4}, None, 4),
        ({"completion_tokens_details": {"reasoning_tokens": 9}}, None, 9),
        ({}, None, None),
    ],
)
async def test_usage_is_read_in_every_known_spelling(usage, cached, reasoning):
    counts = {"prompt_tokens": 100, "completion_tokens": 5.0} | usage
    with stream_of(delta("x", "stop"), {"choices": [], "usage": counts}) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=4)
    assert (reply.prompt_tokens, reply.completion_tokens) == (100, 5)
    assert (reply.cached_tokens, reply.reasoning_tokens) == (cached, reasoning)


async def test_tool_calls_in_pieces_are_merged_by_index():
    def piece(index, **fields):
        return {"choices": [{"delta": {"tool_calls": [{"index": index, **fields}]}}]}

    with stream_of(
        piece(0, id="a", function={"name": "get", "arguments": ""}),
        piece(1, id="b", function={"name": "put", "arguments": '{"x"'}),
        piece(0, function={"arguments": '{"city": '}),
        piece(1, function={"arguments": ": 1}"}),
        piece(0, function={"arguments": '"Oslo"}'}),
        delta(finish="tool_calls"),
    ) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=40)
    calls = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    assert calls == [("a", "get", '{"city": "Oslo"}'), ("b", "put", '{"x": 1}')]
    assert reply.finish_reason == "tool_calls"


async def test_tool_calls_without_index_and_with_object_arguments_are_read():
    calls = [{"id": "a", "function": {"name": "f", "arguments": {"é": 1}}}]
    calls.append({"id": "b", "function": {"name": "g", "arguments": "{}"}})
    answer = {"choices": [{"message": {"content": None, "tool_calls": calls}}]}
    with body_of(answer) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=4, stream=False)
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("f", '{"é": 1}'), ("g", "{}")]


async def test_logprobs_of_both_apis_are_read_alike():
    top = {"token": "b", "logprob": -2.5}
    content = [
        {"token": "a", "logprob": -0.1, "top_logprobs": [{"token": "a", "logprob": -0.1}, top]}
    ]
    chat = {"choices": [{"message": {"content": "a"}, "logprobs": {"content": content}}]}
    legacy = {
        "choices": [
            {
                "text": "a",
                "logprobs": {
                    "tokens": ["a"],
                    "token_logprobs": [-0.1],
                    "top_logprobs": [{"a": -0.1, "b": -2.5}],
                },
            }
        ]
    }
    replies = []
    for answer in (chat, legacy):
        with body_of(answer) as server:
            async with client_of(server.base_url) as client:
                replies.append(await client.chat(HELLO, max_tokens=1, stream=False))
    assert replies[0].logprobs == replies[1].logprobs
    assert replies[0].logprobs[0].top[1] == TopToken(token="b", logprob=-2.5)


async def test_minus_infinity_is_read_and_nan_is_no_number():
    text = (
        '{"choices":[{"message":{"content":"ab"},"logprobs":{"content":'
        '[{"token":"a","logprob":-Infinity},{"token":"b","logprob":NaN}]}}]}'
    )
    with body_of(text) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=1, stream=False)
    assert [entry.logprob for entry in reply.logprobs] == [float("-inf"), None]


async def test_the_replica_comes_from_its_header():
    async def handle(request, connection):
        answer = {"choices": [{"message": {"content": "x"}}]}
        await connection.respond(200, answer, {"X-Replica": "gpu-7", "Set-Cookie": "secret=1"})

    with TinyServer(handle) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=1, stream=False)
    assert reply.replica == "gpu-7"
    assert "set-cookie" not in reply.headers


# ---- the small calls


async def test_a_tokenizer_whose_count_and_tokens_contradict_is_trouble():
    with HostileServer(contradiction=2) as server:
        async with client_of(server.base_url, dialect="vllm") as client:
            with pytest.raises(EndpointError, match="count is 5, but there are 7 tokens"):
                await client.tokenize(HELLO)


async def test_secrets_in_server_info_are_redacted():
    info = {"api_key": "sk-1", "args": {"admin_api_key": "x"}, "echo": "my-key-42", "port": 1}
    with body_of(info) as server:
        async with client_of(server.base_url, dialect="sglang", key="my-key-42") as client:
            found = await client.server_info()
    assert found == {
        "api_key": "[redacted]",
        "args": {"admin_api_key": "[redacted]"},
        "echo": "[redacted]",
        "port": 1,
    }


async def test_small_calls_wait_for_an_overloaded_server_too():
    async def handle(request, connection):
        if len(server.requests) < 3:
            await connection.respond(503, {"error": {"message": "Loading model"}})
        else:
            await connection.respond(200, {"data": [{"id": "m"}]})

    with TinyServer(handle) as server:
        async with client_of(server.base_url) as client:
            assert await client.models() == [{"id": "m"}]
        assert len(server.requests) == 3


async def test_a_stream_whose_type_a_proxy_lost_is_read_as_one():
    async def handle(request, connection):
        await connection.start(headers={"content-type": "application/octet-stream"})
        await connection.event(delta("x", "stop"))
        await connection.end()

    with TinyServer(handle) as server:
        async with client_of(server.base_url) as client:
            assert (await client.chat(HELLO, max_tokens=1)).text == "x"


async def test_metrics_are_summed_over_labels_and_hostile_lines_left_out():
    text = (
        '# HELP x\nvllm:num_requests_waiting{m="a b} c"} 2\nvllm:num_requests_waiting{m="b"} 3\n'
        "garbage\nbad{ 1\nnot_a_number x\ninf +Inf\nstamped 7 1700000000000\n"
    )
    with body_of(text) as server:
        async with client_of(server.base_url) as client:
            metrics = await client.metrics()
    assert metrics == {"vllm:num_requests_waiting": 5.0, "inf": float("inf"), "stamped": 7.0}


async def test_raw_returns_what_came_back_whatever_its_status():
    with HostileServer("bad_request") as server:
        async with client_of(server.base_url) as client:
            reply = await client.raw("POST", "/chat/completions", b"\xff{", {"X-A": "b"})
            root = await client.raw("GET", "//version")
        assert server.requests[0].body == b"\xff{"
        assert server.requests[0].headers["x-a"] == "b"
    assert reply.status == 400
    assert json.loads(reply.body)["error"]["message"] == "no such thing"
    assert (root.status, json.loads(root.body)) == (200, {"version": "1.0"})


async def test_usage_arrives_after_the_finish_reason():
    body = {"messages": HELLO}
    with stream_of(delta("x", "stop"), usage_event(body, 1)) as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=4)
    assert (reply.prompt_tokens, reply.finish_reason) == (5, "stop")
