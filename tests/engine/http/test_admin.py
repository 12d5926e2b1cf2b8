"""Everything around generation: tokens, models, metrics, health, the key."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

KEY = "s3cret-key"


def test_a_text_is_tokenised_and_back(echo):
    body = {"model": "echo", "prompt": "Hé 😀", "return_token_strs": True}
    result = echo.client.post("/tokenize", json=body).json()
    assert result["count"] == len(result["tokens"]) == len(result["token_strs"])
    assert result["max_model_len"] == 32768
    back = echo.client.post("/detokenize", json={"tokens": result["tokens"]})
    assert back.json() == {"prompt": "Hé 😀"}


def test_a_conversation_is_tokenised_as_it_would_be_answered(echo):
    chat = {
        "messages": [{"role": "user", "content": "q"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"thinking": True},
    }
    tokens = echo.client.post("/tokenize", json=chat).json()["tokens"]
    answered = echo.chat(
        chat["messages"], **{k: chat[k] for k in ("tools", "chat_template_kwargs")}
    )
    assert answered.json()["usage"]["prompt_tokens"] == len(tokens)
    text = echo.client.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert text == (
        '<｜begin▁of▁sentence｜>## Tools\n{"name": "f"}<｜User｜>q<｜Assistant｜><think>'
    )
    open_end = echo.client.post("/tokenize", json=chat | {"add_generation_prompt": False}).json()
    assert open_end["tokens"] == tokens[:-2]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}),
        ("/detokenize", {"tokens": [1280]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {}),
    ],
)
def test_what_has_no_tokens_is_refused(echo, path, body):
    response = echo.client.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_the_served_model_is_listed(echo):
    card = echo.client.get("/v1/models").json()["data"][0]
    assert (card["id"], card["object"], card["max_model_len"]) == ("echo", "model", 32768)
    assert echo.client.get("/v1/models/echo").json() == card
    assert echo.client.get("/v1/models/other").status_code == 404


def test_metrics_have_sglangs_names_and_count_requests(echo):
    def read():
        text = echo.client.get("/metrics").text
        families = text_string_to_metric_families(text)
        return {sample.name: sample.value for family in families for sample in family.samples}

    before = read()
    usage = echo.chat("count me").json()["usage"]
    after = read()

    def grown(name):
        return after[name] - before[name]

    assert grown("sglang:num_requests_total") == 1
    assert grown("sglang:prompt_tokens_total") == usage["prompt_tokens"]
    assert grown("sglang:generation_tokens_total") == usage["completion_tokens"]
    assert grown("sglang:e2e_request_latency_seconds_count") == 1
    assert grown("sglang:time_to_first_token_seconds_count") == 1
    for gauge in ("num_running_reqs", "num_queue_reqs", "num_used_tokens", "token_usage"):
        assert after[f"sglang:{gauge}"] == 0


def test_health_is_proven_by_a_token_and_leaves_no_trace(echo):
    before = echo.gauges()["num_requests_total"]
    assert echo.client.get("/health").status_code == 200
    assert echo.client.get("/health_generate").status_code == 200
    assert echo.gauges()["num_requests_total"] == before + 1
    assert "HEALTH" not in echo.stdout.read_text()


def test_server_info_says_how_it_was_started(slow):
    info = slow.client.get("/server_info").json()
    assert (info["model"], info["max_running_requests"], info["max_queued_requests"]) == (
        "echo",
        1,
        1,
    )
    assert info["page_size"] == 64
    assert slow.client.get("/get_server_info").json().keys() == info.keys()
    assert slow.client.get("/patches").json() == {"patches": []}


def test_the_server_does_not_name_its_software(echo):
    assert "server" not in echo.client.get("/health").headers


def test_a_key_guards_everything_but_health(launch):
    flags = ("--api-key-env", "TEST_ENGINE_KEY", "--host", "0.0.0.0")
    with launch("--model", "echo", *flags, env={"TEST_ENGINE_KEY": KEY}) as served:
        served.client.base_url = served.url.replace("0.0.0.0", "127.0.0.1")
        paths = ["/v1/models", "/metrics", "/server_info", "/patches", "/health_generate", "/x"]
        for wrong in (None, f"Bearer {KEY}x", f"bearer {KEY}", KEY, "Bearer schl\xfcssel"):
            headers = {} if wrong is None else {"Authorization": wrong.encode("latin-1")}
            for path in paths:
                response = served.client.get(path, headers=headers)
                assert response.status_code == 401, path
                assert response.json()["error"]["code"] == "invalid_api_key"
                assert KEY not in response.text
            big = served.client.post("/v1/completions", content=b"x" * 1_000_000, headers=headers)
            assert big.status_code == 401
        assert served.client.get("/health").status_code == 200
        served.client.headers["Authorization"] = f"Bearer {KEY}"
        assert served.chat("hello").json()["choices"][0]["message"]["content"] == "hello"
        assert KEY not in served.client.get("/server_info").text
    assert KEY not in served.stderr.read_text() + served.stdout.read_text()
