"""What triage is given: a chat, a log of requests, and what is neither."""

import json
import re

import pytest

from fidelity.cli import main
from fidelity.errors import ConfigError
from fidelity.triage.conversation import conversation_of, text_of
from fidelity.triage.reading import read_conversation
from tests.fidelity.triage.chats import called, chat_file, user


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{", "is neither a JSON chat with messages nor a request log"),
        ("3", "is neither a JSON chat"),
        ({"model": "x"}, "is neither a JSON chat"),
        ({"messages": []}, "the list of messages is empty"),
        ([], "the list of messages is empty"),
        ({"messages": "hi"}, "no `messages` in it"),
        ({"messages": [{"role": "usr", "content": "x"}]}, "message 1 has role 'usr'; known are"),
        ({"messages": [{"role": "user", "content": 3}]}, "neither text nor parts"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no user message waits"),
        ({"messages": [user("x"), called()[1]]}, "answers tool call 'c1', which no message"),
        ({"messages": [user("x")], "tools": 3}, "tools is no list"),
        ({"messages": [user("x")], "max_tokens": "many"}, "max_tokens is 'many', no whole number"),
        ({"messages": [user("x")], "expect": [3]}, "expect is neither a text nor a list"),
    ],
)
def test_bad_input_is_one_clear_sentence(tmp_path, content, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        read_conversation(chat_file(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_clear_sentence(tmp_path, capsys):
    assert main(["triage", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_an_answer_behind_the_question_is_what_was_seen_and_is_not_sent(tmp_path):
    messages = [user("a"), *called(), {"role": "assistant", "content": "It is 4712."}]
    body = {"messages": messages, "max_tokens": 9, "temperature": 0.7, "stream": True, "n": 1}
    chat = read_conversation(chat_file(tmp_path, body))
    assert (len(chat.messages), chat.seen, chat.max_tokens) == (3, "It is 4712.", 9)
    assert dict(chat.params) == {"temperature": 0.7}
    assert chat.names_sampling
    assert conversation_of(chat.as_request(), "x").messages == chat.messages


TEXT_LINE = (
    "[2026-01-31 12:00:00] Receive OpenAI: obj={'model': 'm', 'messages': [{'role': 'user',"
    " 'content': \"it's {odd}: \\n\"}], 'temperature': 0.5}, headers={'a': 'b'}"
)
OTHER_LINES = (
    "[2026-01-31 12:00:00] Receive: obj=GenerateReqInput(rid='a', text=None, input_ids=[1, 2])\n"
    "[2026-01-31 12:00:01] Finish: obj=GenerateReqInput(rid='a'), out={'text': 'x'}\n"
)


def test_a_log_line_is_read_as_text_and_as_json(tmp_path):
    chat = read_conversation(chat_file(tmp_path, OTHER_LINES + TEXT_LINE + "\n"))
    assert text_of(chat.messages[0]) == "it's {odd}: \n"
    assert dict(chat.params) == {"temperature": 0.5}
    event = {"timestamp": "t", "event": "request.received.openai"}
    line = json.dumps(event | {"obj": {"messages": [user("a")], "max_tokens": 3}})
    for text in (line, f"[2026-01-31 12:00:00] {line}\n{OTHER_LINES}"):
        assert read_conversation(chat_file(tmp_path, text)).max_tokens == 3


def test_several_requests_are_listed_and_one_is_chosen(tmp_path):
    lines = [json.dumps({"obj": {"messages": [user(f"question {n}")]}}) for n in range(40)]
    path = chat_file(tmp_path, "\n".join(lines))
    with pytest.raises(ConfigError) as caught:
        read_conversation(path)
    said = str(caught.value).splitlines()
    assert said[0].endswith("holds 40 requests: choose one with --entry N")
    assert said[2].split() == ["2", "1", "messages:", "question", "1"]
    assert said[-1] == "  … 10 more"
    assert text_of(read_conversation(path, entry=40).messages[0]) == "question 39"
    with pytest.raises(ConfigError, match="and no entry 41"):
        read_conversation(path, entry=41)


def test_a_shortened_entry_is_refused_with_the_level_that_keeps_it_whole(tmp_path):
    half = "x" * 1024
    text = f"[t] Receive OpenAI: obj={{'messages': '{half}' ... '{half}'}}"
    line = json.dumps({"obj": {"messages": [user(f"{half}...{half}")]}})
    for content in (text, line):
        with pytest.raises(ConfigError, match=r"shortened its texts.*--log-requests-level 3"):
            read_conversation(chat_file(tmp_path, content))
    whole = {"messages": [user("a")], "stop": ["..."]}
    assert read_conversation(chat_file(tmp_path, json.dumps(whole))).params["stop"] == ["..."]


def nested(levels):
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"messages": [user("x") | {"tool_calls": ["x"]}]}, "tool_calls is no list of calls"),
        ({"messages": [user("x") | {"tool_calls": 3}]}, "tool_calls is no list of calls"),
        ({"messages": [user("x")], "stop": json.loads(nested(200))}, "nested more than 100"),
        ({"messages": [user([json.loads(nested(200))])]}, "nested more than 100"),
        ([user([json.loads(nested(200))])], "nested more than 100"),
        (nested(100_000), "is neither a JSON chat"),
        (f"[2026] Receive OpenAI: obj={nested(100_000)}\nx", "cannot be read"),
        (f'[2026] {{"obj": {nested(100_000)}}}\nx', "is neither a JSON chat"),
        (f'[2026] {{"obj": {{"messages": [], "b": {nested(400)}}}}}\nx', "nested more than 100"),
    ],
)
def test_hostile_input_is_one_clear_sentence(tmp_path, content, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        read_conversation(chat_file(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_what_a_log_says_is_listed_without_control_characters(tmp_path):
    lines = [
        json.dumps({"timestamp": "\x1b[31mnow" + "w" * 500, "obj": {"messages": [user("a")]}}),
        json.dumps({"timestamp": "\x1b]0;x\x07\n", "obj": {"messages": "no"}}),
    ]
    with pytest.raises(ConfigError, match="choose one") as caught:
        read_conversation(chat_file(tmp_path, "\n".join(lines)))
    said = str(caught.value)
    assert all(char.isprintable() for line in said.splitlines() for char in line)
    assert len(said.splitlines()) == 3
    assert max(map(len, said.splitlines()[1:])) < 200


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0c", "\x1e"])
def test_separators_inside_a_text_do_not_cut_a_line_of_json(tmp_path, mark):
    lines = [
        json.dumps({"obj": {"messages": [user(f"a{mark}b{number}")]}}, ensure_ascii=False)
        for number in range(2)
    ]
    path = tmp_path / "x.log"
    path.write_text("\r\n".join(lines), encoding="utf-8", newline="")
    assert text_of(read_conversation(path, entry=2).messages[0]) == f"a{mark}b1"


_CHAT_LINE = '{"timestamp": "t", "obj": {"messages": [{"role": "user", "content": "hi {x}"}]}}'


@pytest.mark.parametrize(
    "line",
    [
        f"sglang-1  | [2026-01-31 12:00:00] {_CHAT_LINE}",
        f"2026-01-31T12:00:00Z pod/sglang-0 {{app}} {_CHAT_LINE}",
        f"sglang-1  | {TEXT_LINE}",
        json.dumps({"log": f"[2026-01-31 12:00:00] {_CHAT_LINE}\n", "stream": "stdout"}),
        json.dumps({"log": TEXT_LINE, "stream": "stdout"}),
    ],
)
def test_a_line_behind_the_prefix_of_a_collector_is_read(tmp_path, line):
    chat = read_conversation(chat_file(tmp_path, f"starting {{x}}\n{line}\nbye"))
    assert "{" in text_of(chat.messages[0])


def test_results_without_a_call_are_replayed_as_they_are(tmp_path):
    messages = [
        user("x"),
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "4711"},
        {"role": "tool", "content": "4712"},
        user("And?"),
    ]
    chat = read_conversation(chat_file(tmp_path, {"messages": messages, "seed": 5}))
    assert [dict(m) for m in chat.messages] == messages
    assert chat.as_request()["seed"] == 5
