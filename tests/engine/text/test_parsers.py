"""Reading answers: every case is fed whole, and cut at each of its positions."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer import joined

OPEN, CLOSE = "<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>"
END = "</｜DSML｜parameter>\n"


def invoke(name, *parameters):
    return f'<｜DSML｜invoke name="{name}">\n' + "".join(parameters) + "</｜DSML｜invoke>\n"


def text(name, value):
    return f'<｜DSML｜parameter name="{name}" string="true">{value}{END}'


def data(name, value):
    return f'<｜DSML｜parameter name="{name}" string="false">{value}{END}'


def answer(reasoning="", content="", calls=()):
    return {"reasoning": reasoning, "content": content, "calls": list(calls)}


CALLS = {
    "plain text": ("Hello.", answer(content="Hello.")),
    "one call": (
        OPEN + invoke("f", text("city", "Rome")) + CLOSE,
        answer(calls=[("f", '{"city": "Rome"}')]),
    ),
    "text before a call, set off by a blank line": (
        "So:\n\n" + OPEN + invoke("f") + CLOSE,
        answer(content="So:", calls=[("f", "{}")]),
    ),
    "text directly before a call": (
        "So:\n" + OPEN + invoke("f") + CLOSE,
        answer(content="So:\n", calls=[("f", "{}")]),
    ),
    "two calls and values of every type": (
        OPEN
        + invoke("f", text("s", 'a "b"\n\\ü </x>'), data("i", "1"), data("o", '{"k": [1, "<x>"]}'))
        + invoke("g", data("n", "null"), text("e", ""))
        + CLOSE,
        answer(
            calls=[
                ("f", '{"s": "a \\"b\\"\\n\\\\ü </x>", "i": 1, "o": {"k": [1, "<x>"]}}'),
                ("g", '{"n": null, "e": ""}'),
            ]
        ),
    ),
    "a string that looks like a number stays a string": (
        OPEN + invoke("f", text("zip", "01234")) + CLOSE,
        answer(calls=[("f", '{"zip": "01234"}')]),
    ),
    "a value that claims to be JSON and is not": (
        OPEN + invoke("f", data("x", 'say "hi"')) + CLOSE,
        answer(calls=[("f", '{"x": "say \\"hi\\""}')]),
    ),
    "a JSON body instead of parameters": (
        OPEN + invoke("f", '{"a": {"b": 1}}\n') + CLOSE,
        answer(calls=[("f", '{"a": {"b": 1}}')]),
    ),
    "text after the block": (
        OPEN + invoke("f") + CLOSE + "\n\nDone.",
        answer(content="Done.", calls=[("f", "{}")]),
    ),
    "two blocks": (
        OPEN + invoke("f") + CLOSE + OPEN + invoke("g") + CLOSE,
        answer(calls=[("f", "{}"), ("g", "{}")]),
    ),
    "a block that is none": (
        OPEN + "just talk",
        answer(content=OPEN + "just talk"),
    ),
    "an empty block": (OPEN + CLOSE, answer()),
    "a marker that never completes": (
        "see <｜DSML｜tool_call",
        answer(content="see <｜DSML｜tool_call"),
    ),
    "blank lines at the end": ("a\n\n", answer(content="a\n\n")),
    "one parameter name twice": (
        OPEN + invoke("f", text("a", "1"), text("a", "2")) + CLOSE,
        answer(content=text("a", "2") + "</｜DSML｜invoke>\n" + CLOSE, calls=[("f", '{"a": "1"')]),
    ),
}


def read(parsers, whole, cuts=(), **how):
    parser = parsers.open(**({"thinking": False, "tools": True} | how))
    bounds = [0, *cuts, len(whole)]
    deltas = []
    for begin, end in itertools.pairwise(bounds):
        deltas += parser.feed(whole[begin:end])
    deltas += parser.close()
    result = answer()
    for delta in deltas:
        if delta.kind == "call":
            assert delta.call == len(result["calls"])
            result["calls"].append((delta.text, ""))
        elif delta.kind == "arguments":
            name, arguments = result["calls"][delta.call]
            result["calls"][delta.call] = (name, arguments + delta.text)
        else:
            result[delta.kind] += delta.text
    return result


def same_at_every_cut(parsers, whole, expected, **how):
    assert read(parsers, whole, **how) == expected
    for cut in range(len(whole)):
        assert read(parsers, whole, [cut], **how) == expected, cut
    assert read(parsers, whole, range(len(whole)), **how) == expected


@pytest.mark.parametrize("case", CALLS, ids=lambda case: case.replace(" ", "_"))
def test_an_answer_reads_the_same_wherever_it_is_cut(parsers, case):
    same_at_every_cut(parsers, *CALLS[case])


THOUGHTS = {
    "reasoning, then an answer": ("why</think>so", answer("why", "so")),
    "reasoning without an end": ("why < /think> </thin", answer("why < /think> </thin")),
    "empty reasoning": ("</think>so", answer("", "so")),
    "a call after reasoning": (
        "why</think>" + OPEN + invoke("f", text("a", "b")) + CLOSE,
        answer("why", calls=[("f", '{"a": "b"}')]),
    ),
    "a call inside reasoning": (
        "why " + OPEN + invoke("f") + CLOSE,
        answer("why ", calls=[("f", "{}")]),
    ),
}


@pytest.mark.parametrize("case", THOUGHTS, ids=lambda case: case.replace(" ", "_"))
def test_reasoning_reads_the_same_wherever_it_is_cut(parsers, case):
    same_at_every_cut(parsers, *THOUGHTS[case], thinking=True)


def test_without_tools_a_block_is_text(parsers):
    block = "a\n\n" + OPEN + invoke("f") + CLOSE
    same_at_every_cut(parsers, block, answer(content=block), tools=False)


def test_in_chat_mode_a_closing_think_tag_is_text(parsers):
    same_at_every_cut(parsers, "a</think>b", answer(content="a</think>b"))


def test_a_limit_on_calls_ends_the_answer_after_that_many(parsers):
    block = OPEN + invoke("f", text("a", "b")) + invoke("g") + CLOSE + "more"
    expected = answer(calls=[("f", '{"a": "b"}')])
    same_at_every_cut(parsers, block, expected, max_calls=1)
    parser = parsers.open(thinking=False, tools=True, max_calls=1)
    parser.feed(block)
    assert parser.finished


def test_an_answer_cut_by_a_limit_keeps_the_beginning_of_its_arguments(parsers):
    whole = OPEN + invoke("f", text("a", "long text")) + CLOSE
    for end in range(len(OPEN) + len('<｜DSML｜invoke name="f">'), len(whole)):
        got = read(parsers, whole[:end])
        (name, arguments) = got["calls"][0]
        assert name == "f"
        # half a closing tag may as well be text of the value, so it is shown
        begun = '{"a": "long text'
        assert any((begun + rest).startswith(arguments) for rest in ('"}', END))
        assert got["content"] == ""


def test_text_streams_as_it_comes_and_arguments_with_it(parsers):
    parser = parsers.open(thinking=False, tools=True)
    assert [d.text for d in parser.feed("Hel")] == ["Hel"]
    parser = parsers.open(thinking=False, tools=True)
    parser.feed(OPEN + '<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">')
    assert [d.text for d in parser.feed("half")] == ["half"]


@settings(max_examples=200, deadline=None)
@given(
    st.text('ab\n<>/｜DSML"= ', max_size=40),
    st.text('ab\n<>/｜"\\ü', max_size=12),
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(), max_size=2),
    st.data(),
)
def test_what_the_encoder_writes_the_parser_reads(parsers, encoder, content, value, more, data):
    arguments = {"first": value} | more
    written = encoder.call_block(
        [{"id": "", "function": {"name": "f", "arguments": json.dumps(arguments)}}], after=content
    )
    whole = content + written
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    got = read(parsers, whole, cuts)
    (name, read_arguments), *others = got["calls"]
    assert (name, json.loads(read_arguments), others) == ("f", arguments, [])
    assert got["content"] == content


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "<｜DSML｜",
                "</｜DSML｜",
                "tool_calls>",
                'invoke name="f">',
                "invoke>",
                "parameter>",
                "a",
                'parameter name="p" string="true">',
                'parameter name="q" string="false">',
                "</think>",
                "\n",
                "{",
                "}",
                "1",
            ]
        ),
        max_size=14,
    ),
    st.booleans(),
    st.data(),
)
def test_hostile_markup_reads_the_same_in_any_portions(parsers, pieces, thinking, data):
    whole = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    assert read(parsers, whole, cuts, thinking=thinking) == read(parsers, whole, thinking=thinking)


def test_reasoning_tokens_are_those_before_its_end(parsers, tokenizer):
    ids = tokenizer.encode("abc</think>answer")
    end = ids.index(tokenizer.token_id("</think>"))
    assert parsers.reasoning_tokens(ids, thinking=True) == end > 0
    assert parsers.reasoning_tokens(ids[:end], thinking=True) == end
    assert parsers.reasoning_tokens(ids, thinking=False) == 0


def test_neighbouring_deltas_are_joined_only_within_one_call(parsers):
    parser = parsers.open(thinking=False, tools=True)
    block = OPEN + invoke("f", text("a", "b")) + invoke("g", text("c", "d")) + CLOSE
    assert [(d.kind, d.text) for d in joined(parser.feed(block))] == [
        ("call", "f"),
        ("arguments", '{"a": "b"}'),
        ("call", "g"),
        ("arguments", '{"c": "d"}'),
    ]
