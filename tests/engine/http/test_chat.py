"""/v1/chat/completions over a real socket: the stream, joined, is the one-shot answer."""

import json

import pytest

UNICODE = "Hé 你好 😀👩‍👩‍👧 done"


def joined(events):
    """The message that a client puts together from a stream."""
    content, reasoning, finish, tokens = "", "", [], []
    for chunk in events:
        for choice in chunk["choices"]:
            content += choice["delta"].get("content") or ""
            reasoning += choice["delta"].get("reasoning_content") or ""
            finish += [choice["finish_reason"]] if choice["finish_reason"] else []
            tokens += (choice["logprobs"] or {"content": []})["content"]
    assert len(finish) == 1
    return content, reasoning, finish[0], tokens


def test_an_answer_has_the_shape_of_the_openai_api(echo):
    response = echo.chat("hello", temperature=0)
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == "echo"
    assert body["id"] == response.headers["x-request-id"]
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_stream_is_role_then_deltas_then_finish_then_usage(echo):
    events = echo.chat_events(UNICODE, stream_options={"include_usage": True})
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    assert events[-2]["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == echo.chat(UNICODE).json()["usage"]
    assert all(event["usage"] is None for event in events[:-1])


def test_no_usage_is_streamed_unless_asked_for(echo):
    assert not any("usage" in event for event in echo.chat_events())


CASES = {
    "unicode": (UNICODE, {}),
    "a limit inside a character": ("aa😀", {"max_tokens": 3}),
    "a stop string over several tokens": (UNICODE, {"stop": " d"}),
    "a stop list": ("one two three", {"stop": ["ree", "o t"]}),
    "a kept stop string": ("one two", {"stop": "tw", "include_stop_str_in_output": True}),
    "a stop token": ("abc", {"stop_token_ids": [99]}),
    "reasoning": ("think", {"chat_template_kwargs": {"thinking": True}}),
    "more than it has to say": ("ab ", {"ignore_eos": True, "max_tokens": 20}),
    "logprobs": (UNICODE, {"logprobs": True, "top_logprobs": 2}),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "_"))
def test_a_stream_joined_is_the_one_shot_answer(echo, case):
    content, more = CASES[case]
    choice = echo.chat(content, **more).json()["choices"][0]
    streamed = joined(echo.chat_events(content, **more))
    assert streamed[:3] == (
        choice["message"]["content"],
        choice["message"].get("reasoning_content", ""),
        choice["finish_reason"],
    )
    assert streamed[3] == (choice["logprobs"] or {"content": []})["content"]


def test_stop_strings_cut_the_text_and_end_the_answer(echo):
    choice = echo.chat("one two three", stop=["ree", "o t"]).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one tw", "stop")
    kept = echo.chat("one two", stop="tw", include_stop_str_in_output=True).json()
    assert kept["choices"][0]["message"]["content"] == "one tw"


def test_no_chunk_holds_half_a_character(echo):
    chunks = echo.chat_events(UNICODE)
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(texts) == UNICODE
    assert not any("\ufffd" in text for text in texts)


def test_a_limit_is_reported_as_length(echo):
    choice = echo.chat("a longer text", max_completion_tokens=2).json()["choices"][0]
    assert choice["finish_reason"] == "length"


def test_logprobs_bring_the_bytes_of_every_token(echo):
    body = echo.chat("é!", logprobs=True, top_logprobs=1).json()
    tokens = body["choices"][0]["logprobs"]["content"]
    assert len(tokens) == body["usage"]["completion_tokens"]
    shown = b"".join(bytes(token["bytes"]) for token in tokens)
    assert shown == "é!<｜end▁of▁sentence｜>".encode()
    assert all(token["top_logprobs"][0]["logprob"] == 0.0 for token in tokens)
    plain = echo.chat("é!", logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert all(token["top_logprobs"] == [] for token in plain)


def test_prompt_logprobs_name_every_prompt_token_but_the_first(echo):
    more = {"prompt_logprobs": 1, "return_token_ids": True, "max_tokens": 1}
    body = echo.chat("hi", **more).json()
    ids = body["prompt_token_ids"]
    assert body["prompt_logprobs"][0] is None
    assert [list(entry) for entry in body["prompt_logprobs"][1:]] == [[str(i)] for i in ids[1:]]
    entry = body["prompt_logprobs"][1]["3"]
    assert entry == {"logprob": 0.0, "rank": 1, "decoded_token": "<｜User｜>"}
    late = echo.chat("hi", prompt_logprobs_start=3, **more).json()["prompt_logprobs"]
    assert [entry is None for entry in late] == [at < 3 for at in range(len(ids))]
    streamed = echo.chat_events("hi", **more)
    assert [e["prompt_logprobs"] for e in streamed if "prompt_logprobs" in e] == [
        body["prompt_logprobs"]
    ]
    assert streamed[0]["prompt_token_ids"] == ids
    choices = [choice for event in streamed for choice in event["choices"]]
    assert [i for choice in choices for i in choice.get("token_ids", [])] == (
        body["choices"][0]["token_ids"]
    )


def test_a_client_may_choose_the_request_id(echo):
    assert echo.chat(rid="mine-1").json()["id"] == "mine-1"
    headers = {"X-Request-Id": "mine-2"}
    body = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
    response = echo.client.post("/v1/chat/completions", json=body, headers=headers)
    assert response.json()["id"] == response.headers["x-request-id"] == "mine-2"


def test_what_official_clients_send_is_served(echo):
    body = {
        "user": "u",
        "metadata": {"k": "v"},
        "n": 1,
        "logit_bias": {},
        "response_format": {"type": "text"},
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "store": False,
        "modalities": ["text"],
        "seed": 7,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.05,
        "frequency_penalty": 0.1,
        "presence_penalty": -0.1,
        "reasoning_effort": "low",
        "chat_template_kwargs": {"thinking": False},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    }
    assert echo.chat([{"role": "user", "content": "x"}], **body).status_code == 200


def test_an_answer_can_be_sent_back_as_it_came(echo):
    question = {"role": "user", "content": "first"}
    more = {"chat_template_kwargs": {"thinking": True}}
    answer = echo.chat([question], **more).json()["choices"][0]["message"]
    official = answer | {"annotations": [], "audio": None, "function_call": None}
    again = echo.chat([question, official, {"role": "user", "content": "second"}])
    assert again.json()["choices"][0]["message"]["content"] == "second"


def test_a_streamed_answer_can_be_sent_back_as_openais_client_keeps_it(echo):
    function = {"name": "f", "arguments": '{"a": 1}', "parsed_arguments": {"a": 1}}
    call = {"id": "c", "type": "function", "index": 0, "function": function}
    answer = {"role": "assistant", "content": None, "parsed": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "one", "name": "f"}
    again = echo.chat([{"role": "user", "content": "q"}, answer, result])
    said = again.json()["choices"][0]["message"]["content"]
    assert said == "<tool_result>one</tool_result>"


def test_text_parts_are_joined_by_a_blank_line(echo):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    choice = echo.chat([{"role": "user", "content": parts}]).json()["choices"][0]
    assert choice["message"]["content"] == "one\n\ntwo"


def test_a_tool_call_streams_as_deltas_of_its_arguments(echo):
    """The echo model is made to call: it repeats a call block that the user wrote."""
    block = (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter name="city" string="true">'
        'New "York"</｜DSML｜parameter>\n<｜DSML｜parameter name="n" string="false">[1, 2]'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    )
    tools = [{"type": "function", "function": {"name": "f"}}]
    choice = echo.chat("Look:\n\n" + block, tools=tools).json()["choices"][0]
    function = choice["message"]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"city": 'New "York"', "n": [1, 2]}
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Look:", "tool_calls")
    deltas = [
        call
        for event in echo.chat_events("Look:\n\n" + block, tools=tools)
        for call in event["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert deltas[0]["function"] == {"name": "f", "arguments": ""}
    assert deltas[0]["id"].startswith("call_")
    assert "".join(d["function"]["arguments"] for d in deltas) == function["arguments"]
    assert len(deltas) > 5
    untouched = echo.chat(block, tools=tools, tool_choice="none").json()["choices"][0]
    assert untouched["message"]["content"] == block
    assert untouched["finish_reason"] == "stop"


def test_without_parallel_calls_the_answer_ends_after_the_first(echo):
    invoke = '<｜DSML｜invoke name="f">\n</｜DSML｜invoke>\n'
    block = f"<｜DSML｜tool_calls>\n{invoke}{invoke}</｜DSML｜tool_calls>"
    more = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "parallel_tool_calls": False,
    }
    choice = echo.chat(block, **more).json()["choices"][0]
    assert [c["function"]["name"] for c in choice["message"]["tool_calls"]] == ["f"]
    assert choice["finish_reason"] == "tool_calls"
    finishes = [e["choices"][0]["finish_reason"] for e in echo.chat_events(block, **more)]
    assert [finish for finish in finishes if finish] == ["tool_calls"]
    echo.wait_for(lambda gauges: gauges["num_running_reqs"] == 0)


def test_reasoning_tokens_are_counted(echo):
    text = "because</think>answer"
    body = echo.chat(text, chat_template_kwargs={"thinking": True}).json()
    assert body["choices"][0]["message"]["content"] == text  # echo closes its own reasoning first
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
