"""`fidelity triage` on a chat of twelve turns: shrunk, and blamed on what is really broken."""

import json
import subprocess

import pytest
from product import BIN, ROOT, clean_environ
from proxies import UpstreamServer

from fidelity.probes.dialogue import Outline, Shape, assistant, dialogue, user
from fidelity.records import Trial, Verdict, read_journal
from fidelity.words import Blame

pytestmark = pytest.mark.acceptance


def _chat(seed):
    """Return twelve turns that tell eleven facts and ask for one, and the answer."""
    told = dialogue(Outline(seed=f"triage {seed}", shape=Shape.TURNS, facts=10))
    messages = []
    for turn in told.turns:
        messages += [user(turn.text), assistant("OK. I will remember that.")]
    messages += [user("Write one line about a lighthouse."), assistant("It stands by the sea.")]
    return [*messages, user(told.question)], told.right


def _triage(tmp_path, server, seed, *words, as_log=False):
    messages, right = _chat(seed)
    assert sum(m["role"] == "user" for m in messages) == 12
    chat, folder = tmp_path / f"chat-{seed}.json", tmp_path / f"run-{seed}"
    body = {"model": "other", "messages": messages, "max_tokens": 48}
    if as_log:
        chat.write_text(f"[2026-01-31 12:00:00] Receive OpenAI: obj={body!r}\n")
    else:
        chat.write_text(json.dumps(body))
    ended = subprocess.run(
        [
            *(str(BIN / "fidelity"), "triage", str(chat), f"--expect={right}"),
            *(f"--base-url={server.base_url}", f"--run-dir={folder}", *words),
        ],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    records = list(read_journal(folder / "run.jsonl"))
    assert isinstance(records[-1], Verdict), ended.stderr
    assert (folder / "report.html").exists()
    return ended, records, folder


def _smallest_turns(folder):
    messages = json.loads((folder / "smallest.json").read_text())["messages"]
    return sum(message["role"] == "user" for message in messages)


def test_dropped_turns_are_lost_in_rendering_with_two_turns_left(tmp_path):
    with UpstreamServer("--fault=last_turn_only") as server:
        ends = [_triage(tmp_path, server, seed, as_log=seed == 1) for seed in range(2)]
    for ended, records, folder in ends:
        assert ended.returncode == 1, ended.stdout
        assert "verdict: lost in rendering (blame: deployment)" in ended.stdout
        assert _smallest_turns(folder) <= 2
        assert records[-1].blame is Blame.DEPLOYMENT
        assert sum(isinstance(record, Trial) for record in records) < 60


def test_a_fault_in_attention_is_lost_in_attention(tmp_path):
    with UpstreamServer("--fault=attention_mod4") as server:
        ends = [_triage(tmp_path, server, seed) for seed in range(2)]
    found = [ended for ended, _, _ in ends if "not reproduced" not in ended.stdout]
    # the fault hits one length in four: a chat may miss it, but not all do
    assert found
    assert all("verdict: lost in attention" in ended.stdout for ended in found)
    assert any("blame: deployment" in ended.stdout for ended in found), found[0].stdout
    assert all(_smallest_turns(folder) < 12 for ended, _, folder in ends if ended in found)


def test_a_healthy_server_blames_nobody_but_the_model(tmp_path, engine):
    ended, records, _ = _triage(tmp_path, engine, 0)
    assert records[-1].blame is not Blame.DEPLOYMENT, ended.stdout
    assert ended.returncode == 0 or records[-1].blame is not None


def test_what_a_stream_alone_loses_is_lost_in_the_stream(tmp_path):
    chat, folder = tmp_path / "chat.json", tmp_path / "run"
    said = "🚀🚀🚀 東京"
    messages = [user(f"Repeat exactly: {said} 한국어 日本語")]
    chat.write_text(json.dumps({"messages": messages, "max_tokens": 64, "expect": said}))
    with UpstreamServer("--fault=stream_loses_joined_characters") as server:
        words = [f"--base-url={server.base_url}", f"--run-dir={folder}"]
        ended = subprocess.run(
            [str(BIN / "fidelity"), "triage", str(chat), *words],
            cwd=ROOT,
            env=clean_environ(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        sent = subprocess.run(
            ["sh", str(folder / "smallest.sh")], capture_output=True, text=True, check=True
        )
    assert ended.returncode == 1, ended.stdout
    assert "verdict: lost in the stream (blame: deployment)" in ended.stdout
    assert "data: [DONE]" in sent.stdout
    assert "東" not in sent.stdout
