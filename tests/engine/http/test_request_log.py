"""The request log, line by line, in SGLang's formats."""

import ast
import json
import re

import pytest

from engine.request_log import GenerateReqInput, shortened_json, shortened_text

STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ")
LONG = "x1 " * 1500  # more than 2048 tokens, and more than 2048 characters


def lines_of(served):
    """The lines without their time stamps."""
    lines = served.stdout.read_text().splitlines()
    assert all(STAMP.match(line) for line in lines)
    return [STAMP.sub("", line) for line in lines]


def logged(launch, *flags, content="it's 'me'\nline two", **more):
    with launch("--model", "echo", "--log-requests", *flags) as served:
        answer = served.chat(content, rid="log-1", temperature=0.5, **more).json()
        return lines_of(served), answer


def test_level_two_shows_the_request_before_and_after_conversion_and_the_end(launch):
    (openai, receive, finish), answer = logged(launch)
    assert openai.startswith("Receive OpenAI: obj={'model': 'echo', 'rid': 'log-1'")
    obj = ast.literal_eval(openai.removeprefix("Receive OpenAI: obj="))
    assert obj["messages"] == [{"role": "user", "content": "it's 'me'\nline two"}]
    assert receive.startswith(
        "Receive: obj=GenerateReqInput(rid='log-1', session_id=None, text=None, input_ids=[0, 3, "
    )
    assert "'temperature': 0.5" in receive
    assert receive.endswith(")")
    head, out = finish.split(", out=")
    assert head.startswith("Finish: obj=GenerateReqInput(rid='log-1', session_id=None, text=")
    assert r"""text="<｜begin▁of▁sentence｜><｜User｜>it's 'me'\nline two<｜Assistant｜""" in head
    out = ast.literal_eval(out)
    assert out["text"] == "it's 'me'\nline two"
    meta = out["meta_info"]
    assert (meta["id"], meta["finish_reason"]) == ("log-1", {"type": "stop", "matched": 1})
    assert meta["completion_tokens"] == answer["usage"]["completion_tokens"]
    assert len(out["output_ids"]) == meta["completion_tokens"]


def test_level_two_shortens_long_texts_and_lists(launch):
    (_, receive, finish), _ = logged(launch, content=LONG)
    assert re.search(r"input_ids=\[0, 3, [^\]]*\] \.\.\. \[[^\]]*, 4, 6\]", receive)
    text = re.search(r"text=('.*?') \.\.\. ('.*?'), input_ids", finish)
    assert [len(ast.literal_eval(part)) for part in text.groups()] == [1024, 1024]


@pytest.mark.parametrize(("level", "sampling"), [("0", False), ("1", True)])
def test_low_levels_hold_no_text(launch, level, sampling):
    lines, _ = logged(launch, "--log-requests-level", level, content="private words")
    assert [line.split(":")[0] for line in lines] == ["Receive", "Finish"]
    assert not any("private" in line or "input_ids" in line for line in lines)
    assert not any("output_ids" in line or "text" in line for line in lines)
    assert all(("sampling_params=" in line) is sampling for line in lines)
    assert "'prompt_tokens': " in lines[1]


def test_level_three_shortens_nothing(launch):
    (_, _, finish), _ = logged(launch, "--log-requests-level", "3", content=LONG)
    assert LONG in finish
    assert " ... " not in finish


def test_json_lines_say_the_same(launch):
    lines, _ = logged(launch, "--log-requests-format", "json", content=LONG)
    openai, receive, finish = map(json.loads, lines)
    assert [line["event"] for line in (openai, receive, finish)] == [
        "request.received.openai",
        "request.received",
        "request.finished",
    ]
    assert "rid" not in openai
    assert receive["rid"] == finish["rid"] == receive["obj"]["rid"] == "log-1"
    assert len(receive["obj"]["input_ids"]) == 2049
    assert receive["obj"]["input_ids"][1024] == "..."
    assert len(finish["out"]["text"]) == 2051
    assert finish["obj"]["text"].startswith("<｜begin▁of▁sentence｜><｜User｜>x1 x1")


def test_a_log_goes_to_a_file_or_a_folder(launch, tmp_path):
    file = tmp_path / "requests.log"
    logged(launch, "--log-requests-target", str(file))[0]
    assert file.read_text().count("\n") == 3
    logged(launch, "--log-requests-target", str(tmp_path))
    assert len(list(tmp_path.glob("*_0.log"))) == 1


def test_an_abort_and_a_length_are_finished_lines(launch):
    lines, _ = logged(launch, max_tokens=2)
    assert "'finish_reason': {'type': 'length', 'length': 2}" in lines[-1]


def test_shortening_keeps_both_ends_and_skips_names_at_the_top_only():
    assert shortened_text("abcdef", 4) == "'ab' ... 'ef'"
    assert shortened_text("abcd", 4) == "'abcd'"
    assert shortened_text([1, 2, 3, 4, 5], 4) == "[1, 2] ... [4, 5]"
    assert shortened_text({"a": {"b": 1}, "b": 2}, 9, frozenset("b")) == "{'a': {'b': 1}}"
    assert shortened_json("abcdef", 4) == "ab...ef"
    assert shortened_json([1, 2, 3, 4, 5], 4) == [1, 2, "...", 4, 5]
    assert shortened_json({"a": {"b": 1}, "b": 2}, 9, frozenset("b")) == {"a": {"b": 1}}


def test_a_line_of_hostile_text_stays_one_line():
    entry = GenerateReqInput(
        rid="r",
        text="a\n[2026-01-01 00:00:00] Finish: obj=\r\x1b[2J",
        input_ids=[],
        sampling_params={},
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        stream=False,
    )
    line = shortened_text(entry, 2048)
    assert line.isprintable()
