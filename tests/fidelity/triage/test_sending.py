"""What triage sends, writes and keeps: bounds, switches, keys, and an early end."""

import json
import signal
import subprocess
import sys
import time

import pytest
from fake_servers import FakeSGLang

from fidelity.cli import main
from fidelity.records import Trial, read_journal
from fidelity.triage.conversation import conversation_of
from tests.fidelity.triage.chats import CHAT, chat_file
from tests.fidelity.triage.forgetful import Server, triaged


def test_the_bound_on_requests_is_kept(tmp_path):
    with Server(sees="last") as server:
        _, records, _ = triaged(tmp_path, server, "--expect=4444", "--requests=20")
        assert sum(isinstance(r, Trial) for r in records) <= 20
        code, _, _ = triaged(tmp_path, server, "--requests=10", "--repeats=50")
    assert code == 2


def test_the_smallest_chat_is_sent_again_by_curl_and_by_triage(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123456")
    with Server(sees="last") as server:
        _, _, folder = triaged(tmp_path, server, "--expect=4444")
        script = (folder / "smallest.sh").read_text()
        assert '"Authorization: Bearer $OPENAI_API_KEY"' in script
        assert "sk-secret" not in script + (folder / "run.jsonl").read_text()
        sent = subprocess.run(
            ["sh", str(folder / "smallest.sh")], capture_output=True, check=True, timeout=30
        )
        assert "first message" in json.loads(sent.stdout)["choices"][0]["message"]["content"]
        again = main(
            [
                "triage",
                str(folder / "smallest.json"),
                f"--base-url={server.base_url}",
                f"--run-dir={tmp_path / 'again'}",
            ]
        )
    assert again == 1
    assert "expected    the answer holds '4444'" in capsys.readouterr().out
    trial = next(r for r in read_journal(folder / "run.jsonl") if isinstance(r, Trial))
    assert main(["replay", str(folder), trial.id]) == 2
    assert "sent again by `fidelity triage RUN/smallest.json`" in capsys.readouterr().err


def test_a_server_that_is_not_there_leaves_a_report_that_says_so(tmp_path, capsys):
    path = chat_file(tmp_path, {"messages": CHAT})
    run = ["--base-url=http://127.0.0.1:9/v1", f"--run-dir={tmp_path / 'run'}"]
    assert main(["triage", str(path), *run]) == 2
    assert "cannot connect" in capsys.readouterr().err
    last = list(read_journal(tmp_path / "run" / "run.jsonl"))[-1]
    assert last.sentence.startswith("not measured: ")
    assert (tmp_path / "run" / "report.html").exists()


def test_an_interrupted_triage_keeps_what_was_asked(tmp_path):
    with Server(sees="last") as server:
        path = chat_file(tmp_path, {"messages": CHAT})
        words = ["triage", str(path), f"--base-url={server.base_url}", "--repeats=100"]
        words += ["--requests=100000", f"--run-dir={tmp_path / 'run'}"]
        harness = subprocess.Popen(
            [sys.executable, "-m", "fidelity.cli", *words], stdout=subprocess.PIPE, text=True
        )
        with harness:
            journal = tmp_path / "run" / "run.jsonl"
            deadline = time.monotonic() + 30
            while not journal.exists() or journal.read_bytes().count(b"\n") < 20:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            harness.send_signal(signal.SIGTERM)
            said = harness.stdout.read()
            assert harness.wait(20) == 130
    assert "interrupted; what was asked is kept" in said
    last = list(read_journal(journal))[-1]
    assert last.interrupted


def test_reasoning_is_switched_also_where_the_chat_sets_template_arguments(tmp_path):
    with FakeSGLang() as server:
        server.answer = lambda body: ["This is the first message."]
        body = {"messages": CHAT, "chat_template_kwargs": {"lang": "en", "thinking": True}}
        triaged(tmp_path, server, body=body)
        sent = [
            r.json["chat_template_kwargs"]
            for r in server.requests
            if r.path.endswith("completions") and r.json.get("chat_template_kwargs")
        ]
    assert {"lang": "en", "thinking": False, "enable_thinking": False} in sent
    assert {"lang": "en", "thinking": True, "enable_thinking": True} in sent


def test_keys_of_a_logged_request_are_neither_sent_nor_written(tmp_path, capsys):
    key = "sk-logged-0123456789"
    body = {
        "messages": CHAT,
        "api_key": key,
        "extra_headers": {"Authorization": f"Bearer {key}"},
        "metadata": {"user": {"access_token": key}},
    }
    with Server(sees="last") as server:
        _, _, folder = triaged(tmp_path, server, "--expect=4444", body=body)
        sent = [json.dumps(r.json) for r in server.requests if r.path.endswith("completions")]
    for path in folder.rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes(), path
    assert json.loads((folder / "smallest.request.json").read_text())["messages"]
    assert not any(key in text for text in sent)
    page = " ".join(capsys.readouterr().out.split())
    assert "are not sent: api_key, extra_headers, access_token" in page


@pytest.mark.parametrize("streamed", [False, True])
def test_a_chat_is_replayed_as_it_was_sent(tmp_path, streamed):
    body = {"messages": CHAT, "stream": streamed, "seed": 77, "temperature": 0.9}
    with Server(sees="last") as server:
        _, _, folder = triaged(tmp_path, server, "--expect=4444", body=body)
        sent = [r.json for r in server.requests if r.path.endswith("completions")]
        replayed = [b for b in sent if b.get("messages") == CHAT][:4]
    assert [b["stream"] for b in replayed] == [streamed] * 4
    assert [b["temperature"] for b in replayed] == [0.9, 0.9, 0, 0]
    assert {b["seed"] for b in replayed} == {77}
    assert json.loads((folder / "smallest.json").read_text())["seed"] == 77


@pytest.mark.parametrize("field", [{"top_p": 0.5}, {"temperature": 0.2}, {"top_k": 5}])
def test_any_field_of_sampling_is_replayed_as_sampled(field):
    assert conversation_of({"messages": CHAT, **field}, "chat").names_sampling


def test_defaults_that_a_log_writes_out_name_no_sampling():
    defaults = {"temperature": 0, "top_p": 1.0, "top_k": -1, "frequency_penalty": 0.0}
    chat = conversation_of({"messages": CHAT, "repetition_penalty": 1.0, **defaults}, "chat")
    assert not chat.names_sampling


def test_a_cut_tool_call_is_named_and_asked_again_with_room(tmp_path, capsys):
    class Caller(FakeSGLang):
        async def send(self, body, connection, words, finish, usage):
            cut = body["max_tokens"] < 100
            call = {"name": "f", "arguments": "" if cut else '{"box": 3}'}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": call}],
            }
            reason = "length" if cut else "tool_calls"
            choice = {"index": 0, "message": message, "finish_reason": reason}
            await connection.respond(200, {"choices": [choice], "usage": usage})

    with Caller() as server:
        code, _, folder = triaged(tmp_path, server, "--expect=4444")
    assert code == 1
    page = " ".join(capsys.readouterr().out.split())
    assert "an empty answer" not in page
    assert "no '4444' in it: a call of f({\"box\": 3})" in page
    assert "answers were cut at 32 tokens: they are judged at 4096" in page
    assert json.loads((folder / "smallest.request.json").read_text())["max_tokens"] == 4096


def test_an_answer_that_was_cut_while_it_spoke_is_not_judged_by_its_half(tmp_path):
    class Slow(FakeSGLang):
        async def send(self, body, connection, words, finish, usage):
            cut = body["max_tokens"] < 100
            said = "Let me see, box 3" if cut else "Let me see, box 3 holds 4444"
            message = {"role": "assistant", "content": said}
            choice = {"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}
            await connection.respond(200, {"choices": [choice], "usage": usage})

    with Slow() as server:
        code, _, _ = triaged(tmp_path, server, "--expect=4444")
    assert code == 0


def test_a_chat_beyond_the_caps_is_told_which_cap(tmp_path, capsys):
    with Server() as server:
        body = {"messages": CHAT, "max_tokens": 100_000_000}
        path = chat_file(tmp_path, body)
        run = [f"--base-url={server.base_url}", f"--run-dir={tmp_path / 'run'}"]
        assert main(["triage", str(path), *run, "--max-tokens=100000"]) == 2
    said = capsys.readouterr().err
    assert "raise --max-tokens" in said
    assert "--requests" not in said
