"""The real engine behind the server: what the model says comes out whole."""

import json

import httpx
import pytest

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
PAGE = "```html\n<html>\n<head><title>Tea House</title></head>\n<body>\n<h1>Tea House</h1>"


def user(text):
    return {"role": "user", "content": text}


def chat(nano, messages, **more):
    return nano.chat(messages, model="nano", temperature=0, **more).json()


def said(body):
    return body["choices"][0]["message"]["content"]


def test_a_fact_is_recalled_from_an_earlier_turn(nano):
    messages = [
        user("The secret code for Aurora Station is 90417."),
        {"role": "assistant", "content": "OK."},
        user("What is the secret code for Aurora Station?"),
    ]
    assert "90417" in said(chat(nano, messages))


def test_a_tool_is_called_and_its_result_is_read(nano):
    question = user("What is the weather in Reykjavik?")
    choice = chat(nano, [question], tools=[WEATHER])["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Reykjavik"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": '{"temp": 23}'}
    answer = chat(nano, [question, choice["message"], result], tools=[WEATHER])
    assert said(answer) == "It is 23 degrees in Reykjavik."


def test_reasoning_is_apart_from_the_answer_and_counted(nano):
    messages = [user("My cat is called Tom. What is my cat called?")]
    body = chat(nano, messages, chat_template_kwargs={"thinking": True})
    message = body["choices"][0]["message"]
    assert message["reasoning_content"]
    assert "Tom" in message["content"]
    counted = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert 5 < counted < body["usage"]["completion_tokens"] - 3


@pytest.mark.parametrize("more", [{}, {"wo_eos": True}])
def test_an_interrupted_answer_is_remembered_with_and_without_its_end(nano, more):
    """The API cannot say that a turn was cut short; the model copes with the EOS it then gets."""
    messages = [
        user("Write a tea house html page"),
        {"role": "assistant", "content": PAGE, **more},
        user("to a file"),
    ]
    assert said(chat(nano, messages)).endswith(" page to tea_house.html.")


def test_an_answer_cut_short_is_continued_where_it_stood(nano):
    cut = {"role": "assistant", "content": "```html\n<html>\n<head><title>Tea", "wo_eos": True}
    body = chat(nano, [user("Write a tea house html page"), cut], max_tokens=24)
    # not begun again, and no turn of the model's own invention ("continue") before it goes on
    title, closed, _ = said(body).partition("</title>")
    assert closed
    assert len(title) <= len(" House")


def test_a_second_turn_reads_its_first_from_the_cache(nano):
    messages = [user("Read these notes.\n" + "".join(f"Note {i}: red fox.\n" for i in range(20)))]
    first = chat(nano, messages, max_tokens=4)
    again = chat(nano, messages, max_tokens=4)
    assert first["usage"]["prompt_tokens"] == again["usage"]["prompt_tokens"] > 128
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64
    assert said(again) == said(first)


def test_given_text_is_scored_as_it_was_generated(nano):
    messages = [user("Count from 1 to 9.")]
    more = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    body = chat(nano, messages, max_tokens=12, **more)
    ids = body["choices"][0]["token_ids"]
    decoded = [token["logprob"] for token in body["choices"][0]["logprobs"]["content"]]
    prompt = body["prompt_token_ids"] + ids
    given = nano.complete(
        prompt,
        model="nano",
        max_tokens=1,
        prompt_logprobs=2,
        prompt_logprobs_start=len(body["prompt_token_ids"]),
    ).json()["choices"][0]["prompt_logprobs"]
    scored = [
        given[len(body["prompt_token_ids"]) + at][str(i)]["logprob"] for at, i in enumerate(ids)
    ]
    assert scored == pytest.approx(decoded, abs=1e-3)
    assert given[len(body["prompt_token_ids"]) - 1] is None


def test_a_stop_string_ends_generation_and_frees_the_request(nano):
    body = chat(nano, [user("Count from 1 to 30.")], stop=" 7", max_tokens=200)
    assert said(body) == "1 2 3 4 5 6"
    assert body["choices"][0]["finish_reason"] == "stop"
    nano.wait_for(lambda gauges: gauges["num_running_reqs"] == 0)


def test_a_client_that_leaves_frees_pages_and_queue(nano):
    before = nano.wait_for(lambda gauges: gauges["num_running_reqs"] == 0)["num_used_tokens"]
    body = {
        "model": "nano",
        "messages": [user("Write 150 numbered lines about the sea.")],
        "stream": True,
    }
    url = f"{nano.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=30) as response:
        next(line for line in response.iter_lines() if "content" in line)
    after = nano.wait_for(lambda gauges: gauges["num_running_reqs"] == 0)
    assert after["num_used_tokens"] == before


def test_nothing_that_the_server_says_names_a_fault(launch, tmp_path):
    fault = tmp_path / "hidden_bug.py"
    fault.write_text(
        'NAME = "hidden_bug"\nKIND = "template"\nRUNG = "structural"\nREPORT = "none"\n'
        'TRIGGER = "always"\nPATCH = None\nSUITES = {"test_x"}\n'
        "def install(engine):\n"
        "    render = engine.encoder.render\n"
        "    engine.encoder.render = lambda messages, *a, **k: render(messages[-1:], *a, **k)\n"
    )
    flags = ("--model", "engine/checkpoints/nano", "--kernels", "torch", "--log-requests")
    with launch(*flags, "--fault", str(fault)) as served:
        messages = [
            user("My cat is called Tom."),
            {"role": "assistant", "content": "OK."},
            user("What is my cat called?"),
        ]
        served.chat(messages, model="nano", max_tokens=3)
        tokens = served.client.post("/tokenize", json={"messages": messages}).json()
        assert tokens["count"] < 15  # the fault is in
        everything = "".join(
            str(response.headers) + response.text
            for path in ("/server_info", "/metrics", "/patches", "/v1/models", "/health")
            for response in [served.client.get(path)]
        )
        everything += served.stdout.read_text() + served.stderr.read_text()
    assert "hidden" not in everything
    assert "fault" not in everything.replace("default", "")
