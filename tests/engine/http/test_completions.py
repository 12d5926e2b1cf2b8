"""/v1/completions over a real socket."""

import pytest

BOS_HI = "<｜begin▁of▁sentence｜><｜User｜>hi there<｜Assistant｜></think>"


def test_a_text_is_continued_without_a_template(echo):
    body = echo.complete(BOS_HI).json()
    assert body["object"] == "text_completion"
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]) == (
        "hi there",
        "stop",
        None,
    )


def test_a_rendered_conversation_is_the_chat_prompt(echo):
    messages = [{"role": "user", "content": "hi there"}]
    body = {"model": "echo", "messages": messages}
    tokens = echo.client.post("/tokenize", json=body).json()["tokens"]
    text = echo.client.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert text == BOS_HI
    for prompt in (tokens, text, [text], [tokens]):
        answer = echo.complete(prompt).json()
        assert answer["choices"][0]["text"] == "hi there"
        assert answer["usage"]["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize(
    "more", [{}, {"echo": True}, {"logprobs": 1}, {"echo": True, "logprobs": 1}]
)
def test_a_stream_joined_is_the_one_shot_answer(echo, more):
    body = {"model": "echo", "prompt": "Hé 你好 😀", "return_token_ids": True} | more
    whole = echo.client.post("/v1/completions", json=body).json()["choices"][0]
    choices = [e["choices"][0] for e in echo.events("/v1/completions", body)]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert [i for choice in choices for i in choice["token_ids"]] == whole["token_ids"]
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == "stop"
    for name in whole["logprobs"] or {}:
        parts = [choice["logprobs"][name] for choice in choices if choice["logprobs"]]
        assert [item for part in parts for item in part] == whole["logprobs"][name], name


def test_given_text_is_scored_without_generating(echo):
    body = echo.complete("Hé a", echo=True, logprobs=1, max_tokens=0).json()
    choice = body["choices"][0]
    assert choice["text"] == "Hé a"
    assert choice["logprobs"] == {
        "tokens": ["H", "bytes:\\xc3", "bytes:\\xa9", " a"],
        "token_logprobs": [None, 0.0, 0.0, 0.0],
        "top_logprobs": [
            None,
            {"bytes:\\xc3": 0.0},
            {"bytes:\\xa9": 0.0},
            {" a": 0.0},
        ],
        "text_offset": [0, 1, 1, 2],
    }
    assert body["usage"]["completion_tokens"] == 0


def test_the_default_limit_is_sixteen_tokens(echo):
    body = echo.complete("word " * 30).json()
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"][0]["finish_reason"] == "length"


def test_usage_closes_a_stream_when_asked_for(echo):
    body = {"model": "echo", "prompt": "abc", "stream_options": {"include_usage": True}}
    events = echo.events("/v1/completions", body)
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["total_tokens"] > 3


REFUSED = {
    "no prompt": [],
    "several prompts": ["a", "b"],
    "several token lists": [[1], [2]],
    "mixed": ["a", 1],
    "a token beyond the vocabulary": [1280],
    "a negative token": [-1],
    "a huge token": [2**70],
    "a truth value": [True],
    "a fraction": [1.5],
    "an empty text": "",
    "an object": {},
    "null": None,
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.replace(" ", "_"))
def test_what_is_no_prompt_is_refused(echo, case):
    response = echo.complete(REFUSED[case])
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
