"""The fp32 server over HTTP: scores, continuations, tokens, dumps, and what it refuses."""

import http.client
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.dumps import file_name as engines_file_name
from reference.dumps import file_name
from reference.encoding import render
from reference.encoding_constants import read_constants
from reference.greedy import scored
from reference.model import Model
from reference.safetensors_file import read_safetensors
from reference.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
NANO = ROOT / "engine" / "checkpoints" / "nano"
IDS = Tokenizer(NANO / "tokenizer.json").encode("The code of the tower is 4711. The code of the")


class Server:
    def __init__(self, folder: Path) -> None:
        self.dumps = folder / "dumps"
        command = ["-m", "reference.server", "--model", str(NANO), "--port", "0"]
        command += ["--dump-activations", str(self.dumps), "--max-model-len", "2048"]
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        self.port = int(line.rpartition(":")[2])

    def ask(self, path, body=None, *, raw=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        content = json.dumps(body).encode() if raw is None and body is not None else raw
        connection.request("POST" if content is not None else "GET", path, content, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text if "event-stream" in answer.headers[
            "Content-Type"
        ] else json.loads(text)

    def complete(self, **body):
        status, answer = self.ask("/v1/completions", body)
        assert status == 200, answer
        return answer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.process.terminate()
    server.process.wait(10)
    server.process.stdout.close()


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(NANO)


def test_given_text_is_scored_as_transformers_scores_it(server, nano_golden) -> None:
    prompt = nano_golden.prompts[300]
    answer = server.complete(
        prompt=prompt.tolist(), max_tokens=1, prompt_logprobs=3, prompt_logprobs_start=200
    )
    rows = answer["choices"][0]["prompt_logprobs"]
    assert rows[:200] == [None] * 200
    logits = nano_golden.activations(300)["logits"]
    wanted = scored(logits[199:-1], prompt[200:].tolist(), top=3)
    for row, token in zip(rows[200:], wanted, strict=True):
        given = row[str(token.token_id)]
        assert next(iter(row)) == str(token.token_id)
        assert abs(given["logprob"] - token.logprob) <= 5e-4
        for token_id, logprob in token.top:
            assert abs(row[str(token_id)]["logprob"] - logprob) <= 5e-4
    assert answer["usage"]["prompt_tokens"] == 300


def test_a_continuation_is_greedy_and_says_its_logprobs(server, model) -> None:
    answer = server.complete(
        prompt=IDS, max_tokens=6, logprobs=2, return_token_ids=True, ignore_eos=True, temperature=0
    )
    choice = answer["choices"][0]
    tokens = []
    for _ in range(6):
        tokens.append(int(model.forward(torch.tensor([*IDS, *tokens]))[-1].argmax()))
    assert choice["token_ids"] == tokens
    assert choice["prompt_token_ids"] == IDS
    assert choice["finish_reason"] == "length"
    logits = model.forward(torch.tensor([*IDS, *tokens[:-1]]))[len(IDS) - 1 :]
    wanted = scored(logits, tokens, top=2)
    told = choice["logprobs"]["token_logprobs"]
    assert max(abs(a - b.logprob) for a, b in zip(told, wanted, strict=True)) < 1e-5
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    assert choice["logprobs"]["text_offset"][0] == 0


def test_a_text_is_completed_as_its_tokens(server) -> None:
    text = Tokenizer(NANO / "tokenizer.json").decode(IDS)
    asked = {"max_tokens": 3, "ignore_eos": True}
    both = [server.complete(prompt=prompt, **asked)["choices"][0]["text"] for prompt in (text, IDS)]
    assert both[0] == both[1] != ""


def test_a_stop_string_ends_the_text_before_it(server) -> None:
    whole = server.complete(prompt=IDS, max_tokens=8, ignore_eos=True)["choices"][0]["text"]
    stop = whole[3:5]
    cut = server.complete(prompt=IDS, max_tokens=8, ignore_eos=True, stop=stop)["choices"][0]
    assert cut["text"] == whole[: whole.index(stop)]
    assert cut["finish_reason"] == "stop"


def test_a_stream_tells_the_same_in_events(server) -> None:
    body = {"prompt": IDS, "max_tokens": 3, "stream": True, "ignore_eos": True}
    body["stream_options"] = {"include_usage": True}
    status, text = server.ask("/v1/completions", body)
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert (status, events[-1], len(events)) == (200, "[DONE]", 3)
    whole = server.complete(prompt=IDS, max_tokens=3, ignore_eos=True)
    assert json.loads(events[0])["choices"] == whole["choices"]
    assert json.loads(events[1])["usage"] == whole["usage"]


def test_a_chat_reads_the_reference_encoding(server) -> None:
    messages = [{"role": "user", "content": "What is the code?"}]
    text = render(read_constants(NANO / "encoding.json"), messages, thinking=True)
    ids = Tokenizer(NANO / "tokenizer.json").encode(text)
    asked = {"messages": messages, "chat_template_kwargs": {"thinking": True}}
    assert server.ask("/tokenize", asked)[1]["tokens"] == ids
    assert server.ask("/detokenize", {"tokens": ids})[1] == {"prompt": text}
    status, answer = server.ask(
        "/v1/chat/completions",
        {**asked, "max_tokens": 2, "return_token_ids": True, "logprobs": True, "top_logprobs": 2},
    )
    assert status == 200
    assert answer["prompt_token_ids"] == ids
    assert len(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert answer["choices"][0]["message"]["role"] == "assistant"


def test_a_dump_has_the_engines_keys_shapes_and_metadata(server, model) -> None:
    server.complete(prompt=IDS, max_tokens=3, ignore_eos=True, rid="dumped")
    path = server.dumps / "dumped.safetensors"
    rows, metadata = read_safetensors(path)
    computed = json.loads(metadata["token_ids"])
    assert computed[: len(IDS)] == IDS
    assert len(computed) == len(IDS) + 2
    assert metadata["first_position"] == "0"
    kept = {}
    model.forward(torch.tensor(computed), record=kept.__setitem__)
    assert set(rows) == set(kept) == set(load_file(path))
    for key, value in kept.items():
        assert rows[key].dtype == value.dtype
        assert torch.equal(rows[key], value)


@pytest.mark.parametrize("request_id", ["a", "../../x", "a/b", "..", "x" * 300, "\ud800", "ü"])
def test_dumps_are_named_as_the_engines(request_id) -> None:
    assert file_name(request_id) == engines_file_name(request_id)


REFUSED = {
    "prompt is missing": ({"max_tokens": 1}, "token ids: null"),
    "no tokens": ({"prompt": []}, "prompt: 0 prompt tokens"),
    "too long": ({"prompt": [3] * 2048}, "2048 in all"),
    "not in the vocabulary": ({"prompt": [10**6]}, "token_ids"),
    "sampling": ({"prompt": IDS, "temperature": 0.7}, "greedily only"),
    "several answers": ({"prompt": IDS, "n": 2}, "n: 2; accepted: 1"),
    "an unknown field": ({"prompt": IDS, "top_logprobz": 1}, "top_logprobz"),
    "top_p": ({"prompt": IDS, "top_p": 1.5}, "top_p: 1.5"),
    "seed": ({"prompt": IDS, "seed": "x"}, "seed: a str"),
    "no number": ({"prompt": IDS, "max_tokens": "3"}, "max_tokens: a str; accepted: a int"),
    "a boolean for a number": ({"prompt": IDS, "logprobs": True}, "logprobs: a bool"),
    "out of bounds": ({"prompt": IDS, "prompt_logprobs": 51}, "prompt_logprobs: 51"),
    "no tokens wanted": ({"prompt": IDS, "max_tokens": 0}, "max_tokens: 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_completions_are_refused_in_words(server, case) -> None:
    body, words = REFUSED[case]
    status, answer = server.ask("/v1/completions", body)
    assert status == 400
    assert words in answer["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": ["x"]},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": [1]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
        {"messages": [{"role": "user", "content": "x"}], "tools": [{}]},
        {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"x": 1}},
    ],
)
def test_bad_chats_are_refused_in_words(server, body) -> None:
    status, answer = server.ask("/v1/chat/completions", body)
    assert status == 400, answer
    assert answer["error"]["message"]


def test_bad_http_is_refused_and_the_server_lives_on(server) -> None:
    assert server.ask("/v1/nothing")[0] == 404
    assert server.ask("/v1/nothing", {})[0] == 404
    assert server.ask("/tokenize")[0] == 405
    assert server.ask("/tokenize", raw=b"{")[0] == 400
    assert server.ask("/tokenize", raw=b"[" * 100_000)[0] == 400
    assert server.ask("/tokenize", raw=b"[1]")[0] == 400
    assert server.ask("/tokenize", {})[0] == 400
    with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
        plain.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in plain.recv(100)
    with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
        plain.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 411 " in plain.recv(100)
    status, answer = server.ask("/v1/completions", {"model": "other", "prompt": IDS})
    assert status == 404
    assert 'accepted: "nano"' in answer["error"]["message"]
    assert server.ask("/health") == (200, {})
    assert server.ask("/v1/models")[1]["data"][0]["id"] == "nano"


def test_requests_at_once_get_their_own_answers(server) -> None:
    alone = [server.complete(prompt=IDS[: 6 + n], max_tokens=2)["choices"] for n in range(4)]
    found = [None] * 4

    def one(n) -> None:
        found[n] = server.complete(prompt=IDS[: 6 + n], max_tokens=2)["choices"]

    threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "nowhere", "--port", "0"), "config.json cannot be used"),
        (("--model", str(NANO), "--port", "70000"), "port"),
    ],
)
def test_a_start_that_cannot_be_is_refused_in_words(arguments, words) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reference.server", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
