"""Bad input: a 4xx in the OpenAI shape, and the server goes on serving."""

import json
import socket

import pytest

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def chat(**changes):
    return json.dumps({"model": "echo", "messages": USER} | changes).encode()


def nested(depth):
    return b'{"a":' * depth + b"1" + b"}" * depth


MALFORMED = {
    "nothing": b"",
    "no json": b"hello",
    "half an object": b'{"model": "echo"',
    "two objects": chat() + b"{}",
    "a list": b"[]",
    "null": b"null",
    "a raw NUL byte": chat().replace(b"hi", b"h\x00i"),
    "an escaped NUL": chat().replace(b"hi", b"h\\u0000i"),
    "a NUL in a key of a tool": chat(
        tools=[TOOL | {"function": {"name": "f", "parameters": {"a\0": 1}}}]
    ),
    "an unpaired high surrogate": chat().replace(b"hi", b"\\ud800"),
    "an unpaired low surrogate": chat().replace(b"hi", b"\\udc00 x"),
    "invalid utf-8": chat().replace(b"hi", b"\xff\xfe"),
    "not a number": chat().replace(b'"model"', b'"temperature": NaN, "model"'),
    "an infinite number": chat().replace(b'"model"', b'"temperature": 1e999, "model"'),
    "a body nested too deeply": nested(100_000),
    "a tool nested too deeply": chat().replace(
        b'"model"',
        b'"tools": [{"type": "function", "function": ' + nested(100_000) + b'}], "model"',
    ),
}
WRONG = {
    "an unknown field": {"colour": "red"},
    "messages of another type": {"messages": "hi"},
    "no messages": {"messages": []},
    "messages null": {"messages": None},
    "an unknown role": {"messages": [{"role": "wizard", "content": "hi"}]},
    "no role": {"messages": [{"content": "hi"}]},
    "no content": {"messages": [{"role": "user"}]},
    "content null": {"messages": [{"role": "user", "content": None}]},
    "content a number": {"messages": [{"role": "user", "content": 1}]},
    "an image": {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]
    },
    "an unknown field of a message": {"messages": [USER[0] | {"colour": "red"}]},
    "a speaker's name": {"messages": [USER[0] | {"name": "Ann"}]},
    "an assistant that says nothing": {"messages": [{"role": "assistant", "content": None}]},
    "a result without an id": {"messages": [{"role": "tool", "content": "x"}]},
    "a role of other checkpoints": {"messages": [{"role": "latest_reminder", "content": "x"}]},
    "call arguments that are no json": {
        "messages": [
            *USER,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "nope"}}
                ],
            },
        ]
    },
    "a negative limit": {"max_tokens": -1},
    "a limit of zero": {"max_tokens": 0},
    "a huge limit": {"max_tokens": 2**80},
    "a limit as text": {"max_tokens": "5"},
    "a limit as truth value": {"max_tokens": True},
    "a fractional limit": {"max_tokens": 1.5},
    "two limits": {"max_tokens": 1, "max_completion_tokens": 2},
    "a negative temperature": {"temperature": -0.1},
    "a hot temperature": {"temperature": 2.1},
    "top_p of zero": {"top_p": 0},
    "top_p above one": {"top_p": 1.1},
    "top_k below -1": {"top_k": -2},
    "min_p above one": {"min_p": 2},
    "a large penalty": {"presence_penalty": 3},
    "a huge seed": {"seed": 2**64},
    "an empty stop": {"stop": ""},
    "too many stops": {"stop": ["x"] * 17},
    "a long stop": {"stop": "x" * 257},
    "a stop of another type": {"stop": [1]},
    "a negative stop token": {"stop_token_ids": [-1]},
    "top_logprobs without logprobs": {"top_logprobs": 1},
    "too many top_logprobs": {"logprobs": True, "top_logprobs": 21},
    "stream options without a stream": {"stream_options": {"include_usage": True}},
    "stream as text": {"stream": "yes"},
    "a request id with a line break": {"rid": "a\nb"},
    "an empty request id": {"rid": ""},
    "an unknown effort": {"reasoning_effort": "extreme"},
    "thinking without effort": {
        "reasoning_effort": "none",
        "chat_template_kwargs": {"thinking": True},
    },
    "an unknown template option": {"chat_template_kwargs": {"enable_thinking": True}},
    "a tool without a name": {"tools": [{"type": "function", "function": {}}]},
    "a tool of another type": {"tools": [{"type": "web", "function": {"name": "f"}}]},
    "a strict tool": {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]},
    "several answers": {"n": 2},
    "one answer as truth value": {"n": True},
    "a biased token": {"logit_bias": {"1": 5}},
    "json output": {"response_format": {"type": "json_object"}},
    "a schema": {"response_format": {"type": "json_schema", "json_schema": {}}},
    "a forced call": {"tools": [TOOL], "tool_choice": "required"},
    "a chosen function": {
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    },
    "old functions": {"functions": []},
    "audio": {"modalities": ["text", "audio"]},
    "a prediction": {"prediction": {"type": "content", "content": "x"}},
    "storage": {"store": True},
    "a service tier": {"service_tier": "flex"},
    "a repetition penalty": {"repetition_penalty": 1.2},
    "a minimum length": {"min_tokens": 1},
}


def refused(response, status=400):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert "\n" not in error["message"]
    return error


@pytest.fixture(autouse=True)
def _still_serves(echo):
    yield
    assert echo.chat("still there").json()["choices"][0]["message"]["content"] == "still there"


def post(served, content, path="/v1/chat/completions", content_type="application/json"):
    return served.client.post(path, content=content, headers={"Content-Type": content_type})


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.replace(" ", "_"))
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize", "/abort_request"])
def test_what_is_no_valid_json_is_refused(echo, path, case):
    refused(post(echo, MALFORMED[case], path))


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.replace(" ", "_"))
def test_a_wrong_field_is_refused_and_never_ignored(echo, case):
    refused(post(echo, chat(**WRONG[case])))


def test_a_refusal_names_the_field(echo):
    error = refused(post(echo, chat(messages=[*USER, {"role": "wizard", "content": "x"}])))
    assert error["param"] == "messages[1].role"
    assert "'wizard'" in error["message"]
    assert "logit_bias" in refused(post(echo, chat(logit_bias={"1": 5})))["message"]


def test_an_unknown_model_is_not_found(echo):
    response = post(echo, chat(model="gpt-4"))
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'gpt-4'" in error["message"]


def test_ten_megabytes_are_refused_and_the_refusal_arrives(echo):
    error = refused(post(echo, chat(messages=[{"role": "user", "content": "x" * 10_000_000}])), 413)
    assert "8388608" in error["message"]
    assert refused(
        echo.client.post(
            "/v1/completions",
            content=(b"x" * 65536 for _ in range(160)),
            headers={"Content-Type": "application/json"},
        ),
        413,
    )


def test_a_context_that_is_too_long_is_refused_with_the_numbers(echo):
    error = refused(echo.chat("x y " * 40_000))
    assert error["code"] == "context_length_exceeded"
    assert "32768" in error["message"]
    error = refused(echo.chat("hi", max_tokens=32768))
    assert "32774" in error["message"]
    assert refused(echo.complete([5] * 32769))["code"] == "context_length_exceeded"


def test_a_prompt_of_the_whole_context_is_served_to_the_last_token(echo):
    body = echo.complete([5] * 32767, max_tokens=1).json()
    assert body["usage"]["total_tokens"] == 32768


def test_another_content_type_is_refused(echo):
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        refused(post(echo, chat(), content_type=content_type), 415)
    assert post(echo, chat(), content_type="application/json; charset=utf-8").status_code == 200


def test_a_compressed_body_is_refused(echo):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused(echo.client.post("/v1/chat/completions", content=chat(), headers=headers), 415)


def test_unknown_paths_and_methods_are_refused_in_the_same_shape(echo):
    refused(echo.client.get("/v1/nothing"), 404)
    refused(echo.client.get("/v1/chat/completions"), 405)
    refused(echo.client.delete("/v1/models"), 405)


def test_a_header_that_is_no_request_id_is_refused(echo):
    headers = {"Content-Type": "application/json", "X-Request-Id": "two words"}
    refused(echo.client.post("/v1/chat/completions", content=chat(), headers=headers))


def test_a_client_that_hangs_up_in_mid_body_harms_nobody(echo):
    host, _, port = echo.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as half:
        half.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
        )


def test_garbage_instead_of_http_harms_nobody(echo):
    host, _, port = echo.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"\x16\x03\x01\x00\x00garbage\r\n\r\n")
        raw.settimeout(5)
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
