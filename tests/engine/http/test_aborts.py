"""Requests that end early: by their client leaving, by call, by the queue's limit."""

import concurrent.futures
import contextlib
import json
import threading
import time

import httpx
import pytest

LONG = "word " * 400


def idle(gauges):
    return gauges["num_running_reqs"] == gauges["num_queue_reqs"] == 0


@pytest.fixture(autouse=True)
def _ends_idle(slow):
    yield
    slow.client.post("/abort_request", json={"abort_all": True})
    slow.wait_for(idle)


@contextlib.contextmanager
def streaming(served, **more):
    """An open stream of a request that takes 8 s; yields the lines after the first delta."""
    messages = [{"role": "user", "content": LONG}]
    body = {"model": "echo", "messages": messages, "stream": True} | more
    url = f"{served.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=30) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        next(line for line in lines if '"content":"w' in line)
        yield lines


def test_a_client_that_leaves_a_stream_frees_its_request_at_once(slow):
    with streaming(slow):
        assert slow.gauges()["num_running_reqs"] == 1
    began = time.monotonic()
    slow.wait_for(idle)
    assert time.monotonic() - began < 3  # left alone it would run for 8 s


def test_a_client_that_leaves_a_whole_answer_frees_its_request_at_once(slow):
    body = {"model": "echo", "messages": [{"role": "user", "content": LONG}]}
    with httpx.Client(base_url=slow.url, timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        client.post("/v1/chat/completions", json=body)
    began = time.monotonic()
    slow.wait_for(idle)
    assert time.monotonic() - began < 3  # left alone it would run for 8 s


def test_a_client_that_leaves_while_it_waits_frees_its_place(slow):
    body = {"model": "echo", "messages": [{"role": "user", "content": LONG}], "stream": True}
    with streaming(slow):
        with httpx.stream("POST", f"{slow.url}/v1/chat/completions", json=body, timeout=30):
            slow.wait_for(lambda gauges: gauges["num_queue_reqs"] == 1)
        slow.wait_for(lambda gauges: gauges["num_queue_reqs"] == 0)
        assert slow.gauges()["num_running_reqs"] == 1


def test_an_abort_by_call_ends_a_stream_with_its_reason(slow):
    with streaming(slow, rid="abort-me", stream_options={"include_usage": True}) as lines:
        aborted = slow.client.post("/abort_request", json={"rid": "abort-me"})
        assert aborted.json() == {"aborted": 1}
        rest = [line.removeprefix("data: ") for line in lines if line]
    assert rest[-1] == "[DONE]"
    chunks = [json.loads(line) for line in rest[:-1]]
    finishes = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert [finish for finish in finishes if finish] == ["abort"]
    assert chunks[-1]["usage"]["completion_tokens"] >= 1


def test_an_abort_by_call_ends_a_whole_answer_with_what_there_is(slow):
    body = {"model": "echo", "messages": [{"role": "user", "content": LONG}], "rid": "whole"}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, f"{slow.url}/v1/chat/completions", json=body, timeout=30)
        slow.wait_for(lambda gauges: gauges["num_used_tokens"] > 410)
        slow.client.post("/abort_request", json={"rid": "whole"})
        choice = waiting.result().json()["choices"][0]
    assert choice["finish_reason"] == "abort"
    assert choice["message"]["content"]
    assert LONG.startswith(choice["message"]["content"])


def test_an_abort_matches_whole_ids_only(slow):
    with streaming(slow, rid="abc-123"):
        for other in ("abc", "abc-1234", "bc-123"):
            assert slow.client.post("/abort_request", json={"rid": other}).json() == {"aborted": 0}
        assert slow.gauges()["num_running_reqs"] == 1
    assert slow.client.post("/abort_request", json={}).status_code == 400
    assert slow.client.post("/abort_request", json={"rid": ""}).status_code == 400


def test_a_full_queue_refuses_with_503_and_when_to_come_back(slow):
    body = {"model": "echo", "messages": [{"role": "user", "content": LONG}], "stream": True}
    url = f"{slow.url}/v1/chat/completions"
    with streaming(slow), httpx.stream("POST", url, json=body, timeout=30):
        slow.wait_for(lambda gauges: gauges["num_queue_reqs"] == 1)
        for stream in (True, False):
            refused = slow.chat("one too many", stream=stream)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["message"] == "The request queue is full."
        assert slow.gauges()["num_queue_reqs"] == 1


def test_an_id_in_use_is_refused(slow):
    with streaming(slow, rid="once"):
        refused = slow.chat("again", rid="once")
        assert refused.status_code == 400
        assert "'once'" in refused.json()["error"]["message"]
        assert slow.gauges()["num_running_reqs"] == 1
    slow.wait_for(idle)
    assert slow.chat("again", rid="once").status_code == 200


def test_a_flush_waits_for_nobody_and_says_so(slow):
    with streaming(slow):
        refused = slow.client.post("/flush_cache")
        assert refused.status_code == 400
        assert "running" in refused.json()["error"]["message"]
    slow.wait_for(idle)
    assert slow.client.post("/flush_cache").status_code == 200
    assert slow.client.get("/flush_cache").status_code == 200


def test_a_storm_of_leaving_clients_leaves_nothing_behind(launch):
    with launch("--model", "echo", "--echo-tokens-per-s", "100") as served:
        before = served.gauges()["num_used_tokens"]
        bystander = {}

        def watch():
            bystander["answer"] = served.chat("a b c " * 20).json()["choices"][0]

        thread = threading.Thread(target=watch)
        thread.start()

        def leave(_):
            body = {"model": "echo", "messages": [{"role": "user", "content": LONG}]}
            body["stream"] = True
            url = f"{served.url}/v1/chat/completions"
            with httpx.stream("POST", url, json=body, timeout=30) as response:
                next(response.iter_lines())

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(leave, range(40)))
        thread.join()
        assert bystander["answer"]["message"]["content"] == "a b c " * 20
        assert served.wait_for(idle)["num_used_tokens"] == before == 0


def test_a_server_told_to_stop_ends_its_streams_and_exits_in_order(launch):
    with launch("--model", "echo", "--echo-tokens-per-s", "20") as served:
        with streaming(served) as lines:
            served.process.terminate()
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"abort"' in rest[-2]
        assert served.process.wait(timeout=10) == 0
