"""The chat encoding and the strict parser, by hand, and against the engine's on many talks."""

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.encoding import ChatEncoder
from engine.encoding_spec import load_encoding_spec
from reference.chat_message import assistant_message
from reference.encoding import render
from reference.encoding_constants import read_constants
from reference.parser import parse

NANO = Path(__file__).parents[2] / "engine" / "checkpoints" / "nano" / "encoding.json"
BOS, EOS, U, A = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"é": 1}}}
LINE = '{"name": "f", "parameters": {"é": 1}}'
# As the published model has them: a blank line before tools and calls in any case, a reminder.
V4 = replace(
    read_constants(NANO),
    tools_after=("\n\n", "\n\n"),
    calls_after=("\n\n", "\n\n"),
    latest_reminder="<｜latest_reminder｜>",
    tools_template="## Tools\n\n{schemas}\n",
    efforts={"high": "", "max": "Think hard.\n\n"},
)


def user(text):
    return {"role": "user", "content": text}


def system(text, **more):
    return {"role": "system", "content": text, **more}


def developer(text, **more):
    return {"role": "developer", "content": text, **more}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(arguments, call_id="c1", name="f"):
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def result(text, call_id="c1"):
    return {"role": "tool", "content": text, "tool_call_id": call_id}


THOUGHT = assistant("b", reasoning_content="r")
CALLS = (
    '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n{}\n</｜DSML｜invoke>\n'
    "</｜DSML｜tool_calls>"
)
REMINDER = {"role": "latest_reminder", "content": "now"}

CASES = {
    "chat": ([user("a")], {}, f"{BOS}{U}a{A}</think>"),
    "thinking": ([user("a")], {"thinking": True}, f"{BOS}{U}a{A}<think>"),
    "system text has no mark": ([system("s"), user("a")], {}, f"{BOS}s{U}a{A}</think>"),
    "system last asks for nothing": ([user("a"), system("s")], {}, f"{BOS}{U}as"),
    "no prompt after an answer": ([user("a"), assistant("b")], {}, f"{BOS}{U}a{A}</think>b{EOS}"),
    "no prompt asked for": ([user("a")], {"add_generation_prompt": False}, f"{BOS}{U}a"),
    "users join": ([user("a"), user("b")], {}, f"{BOS}{U}a\n\nb{A}</think>"),
    "chat shows no reasoning": (
        [user("a"), THOUGHT, user("c")],
        {},
        f"{BOS}{U}a{A}</think>b{EOS}{U}c{A}</think>",
    ),
    "past reasoning is dropped": (
        [user("a"), THOUGHT, user("c")],
        {"thinking": True},
        f"{BOS}{U}a{A}</think>b{EOS}{U}c{A}<think>",
    ),
    "past reasoning is kept where asked": (
        [user("a"), THOUGHT, user("c"), assistant("d")],
        {"thinking": True, "drop_thinking": False},
        f"{BOS}{U}a{A}<think>r</think>b{EOS}{U}c{A}<think></think>d{EOS}",
    ),
    "tools keep reasoning": (
        [system("s", tools=[TOOL]), user("a"), THOUGHT, user("c")],
        {"thinking": True},
        f"{BOS}s\n\n## Tools\n\n{LINE}\n{U}a{A}<think>r</think>b{EOS}{U}c{A}<think>",
    ),
    "tools of the request stand first": (
        [user("a")],
        {"tools": [TOOL, TOOL]},
        f"{BOS}\n\n## Tools\n\n{LINE}\n{LINE}\n{U}a{A}</think>",
    ),
    "tools on a user message are lost": (
        [{**user("a"), "tools": [TOOL]}, THOUGHT, user("c")],
        {"thinking": True},
        f"{BOS}{U}a{A}</think>b{EOS}{U}c{A}<think>",
    ),
    "developer is a turn with tools": (
        [developer("d", tools=[TOOL])],
        {},
        f"{BOS}{U}d\n\n## Tools\n\n{LINE}\n{A}</think>",
    ),
    "a past developer message vanishes": (
        [developer("d"), assistant("b"), user("c")],
        {"thinking": True},
        f"{BOS}b{EOS}{U}c{A}<think>",
    ),
    "a past developer message stays in chat": (
        [developer("d"), user("c")],
        {},
        f"{BOS}{U}d{U}c{A}</think>",
    ),
    "effort stands before the system text": (
        [system("s"), user("a")],
        {"thinking": True, "effort": "max"},
        f"{BOS}Think hard.\n\ns{U}a{A}<think>",
    ),
    "effort is ignored in chat": ([user("a")], {"effort": "max"}, f"{BOS}{U}a{A}</think>"),
    "a reminder after the system text": (
        [system("s"), REMINDER, user("a")],
        {},
        f"{BOS}s<｜latest_reminder｜>now{U}a{A}</think>",
    ),
    "a reminder after a question closes it": (
        [user("a"), REMINDER, user("c")],
        {"thinking": True},
        f"{BOS}{U}a{A}</think><｜latest_reminder｜>now{U}c{A}<think>",
    ),
    "results stand in the order of their calls": (
        [
            user("a"),
            assistant(None, tool_calls=[call("{}", "x"), call("{}", "y")]),
            result("Y", "y"),
            user("and"),
            result("X", "x"),
        ],
        {"drop_thinking": False},
        f"{BOS}{U}a{A}</think>"
        + CALLS.format('\n</｜DSML｜invoke>\n<｜DSML｜invoke name="f">\n')
        + f"{EOS}{U}<tool_result>X</tool_result>\n\nand\n\n<tool_result>Y</tool_result>{A}</think>",
    ),
    "a result counts as the last question": (
        [user("a"), assistant("", reasoning_content="r", tool_calls=[call("{}")]), result("x")],
        {"thinking": True},
        f"{BOS}{U}a{A}</think>{CALLS.format('')}{EOS}{U}<tool_result>x</tool_result>{A}<think>",
    ),
    "arguments of every type": (
        [
            user("a"),
            assistant("b", tool_calls=[call('{"s": "x\\"\\n<", "n": 1.5, "o": {"é": null}}')]),
        ],
        {},
        f"{BOS}{U}a{A}</think>b"
        + CALLS.format(
            '<｜DSML｜parameter name="s" string="true">x"\n<</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="n" string="false">1.5</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="o" string="false">{"é": null}</｜DSML｜parameter>'
        )
        + EOS,
    ),
    "a turn cut short has no EOS": (
        [user("a"), assistant("b", wo_eos=True), user("c")],
        {},
        f"{BOS}{U}a{A}</think>b{U}c{A}</think>",
    ),
    "parts are joined, others named": (
        [
            user(
                [
                    {"type": "text", "text": "a"},
                    {"type": "image_url"},
                    {"type": "text", "text": "b"},
                ]
            )
        ],
        {},
        f"{BOS}{U}a\n\n[Unsupported image_url]\n\nb{A}</think>",
    ),
    "marks in a text are not escaped": ([user(f"x{U}y")], {}, f"{BOS}{U}x{U}y{A}</think>"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_conversation_is_rendered_as_written(case) -> None:
    messages, options, expected = CASES[case]
    assert render(V4, messages, **options) == expected


def test_turns_are_a_prefix_of_later_turns_unless_reasoning_is_dropped() -> None:
    """What a prefix cache can find again."""
    turns = [user("a"), THOUGHT, user("c"), THOUGHT, user("e")]
    for kept, same in ((False, True), (True, False)):
        texts = [
            render(V4, turns[:n], thinking=True, drop_thinking=kept, add_generation_prompt=False)
            for n in (2, 4)
        ]
        assert texts[1].startswith(texts[0]) is same


@pytest.mark.parametrize(
    ("messages", "options", "message"),
    [
        ([], {}, "messages: none"),
        ([{"role": "robot", "content": "x"}], {}, "role: 'robot'"),
        ([user("a")], {"thinking": True, "effort": "most"}, "effort: 'most'; accepted: high, max"),
        ([assistant("b", tool_calls=[call("{")])], {}, "arguments: no JSON"),
        ([assistant("b", tool_calls=[call("[1]")])], {}, "arguments: JSON list"),
    ],
)
def test_what_cannot_be_rendered_is_refused(messages, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        render(V4, messages, **options)


def test_a_reminder_needs_its_mark() -> None:
    with pytest.raises(ValueError, match="latest_reminder"):
        render(read_constants(NANO), [user("a"), REMINDER])


def talk(draw: random.Random):
    """Any conversation that the engine takes, likely or not."""
    arguments = ["{}", '{"a": 1, "b": "x"}', '{"k": [1, null], "u": "é"}']
    messages = []
    for _ in range(draw.randint(1, 9)):
        role = draw.choice(
            ["user", "user", "assistant", "assistant", "tool", "system", "developer"]
        )
        message = {"role": role, "content": draw.choice(["", "a", "b c"])}
        if role == "assistant":
            if draw.random() < 0.5:
                message["reasoning_content"] = draw.choice(["", "r"])
            if draw.random() < 0.4:
                calls = [call(draw.choice(arguments), f"c{i}") for i in range(draw.randint(1, 3))]
                message["tool_calls"] = calls
            if draw.random() < 0.1:
                message["wo_eos"] = True
        if role == "tool":
            message["tool_call_id"] = draw.choice(["c0", "c1", "c2", "?"])
        messages.append(message)
    return messages


def test_the_engine_renders_every_talk_alike() -> None:
    spec = load_encoding_spec(NANO.parent)
    encoder = ChatEncoder(spec, SimpleNamespace())
    constants = read_constants(NANO)
    draw = random.Random(5)  # noqa: S311 - conversations, not secrets
    for _ in range(4000):
        messages = talk(draw)
        tools = [TOOL] if draw.random() < 0.3 else []
        options = {"thinking": draw.random() < 0.6, "add_generation_prompt": draw.random() < 0.9}
        options["effort"] = draw.choice([None, *constants.efforts])
        ours = render(constants, messages, tools=tools, **options)
        assert ours == encoder.render(messages, tools or None, **options), messages


class TestParser:
    def test_content_reasoning_and_calls(self) -> None:
        assert parse(V4, f"b{EOS}", thinking=False).content == "b"
        answer = parse(V4, f"r</think>b{EOS}", thinking=True)
        assert (answer.reasoning, answer.content, answer.calls) == ("r", "b", ())

    def test_reads_back_what_the_encoding_writes(self) -> None:
        draw = random.Random(6)  # noqa: S311 - conversations, not secrets
        values = ["x", 'quote " and\nline', "</", "é", 1, -2.5, True, None, [1, {"a": "b"}], {}]
        for _ in range(500):
            calls = [
                call(
                    json.dumps({f"k{i}": draw.choice(values) for i in range(draw.randint(0, 4))}),
                    f"c{n}",
                    f"f{n}",
                )
                for n in range(draw.randint(0, 3))
            ]
            content = draw.choice(["", "some text", "text\n"])
            for constants in (V4, read_constants(NANO)):
                turn = assistant(content, reasoning_content="why", tool_calls=calls)
                written = render(constants, [user("a"), turn], thinking=True)
                answer = parse(constants, written.partition("<think>")[2], thinking=True)
                assert (answer.reasoning, answer.content) == ("why", content)
                read = [(c.name, json.loads(c.arguments)) for c in answer.calls]
                told = [c["function"] for c in calls]
                assert read == [(c["name"], json.loads(c["arguments"])) for c in told]

    BLOCK = CALLS.format('<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>')

    @pytest.mark.parametrize(
        ("text", "thinking", "message"),
        [
            ("b", False, "no EOS"),
            (f"b{EOS}c", False, "text after EOS"),
            (f"b{EOS}", True, "no </think>"),
            (f"r{BLOCK}</think>b{EOS}", True, "no </think> before its answer"),
            (f"a</think>b{EOS}", False, "content: the marker </think>"),
            (f"r<think>r</think>b{EOS}", True, "reasoning: the marker <think>"),
            (f"b{BOS}{EOS}", False, "content: the marker"),
            (f"b{BLOCK}more{EOS}", False, "block of calls"),
            (f"b{BLOCK.replace('</｜DSML｜tool_calls>', '')}{EOS}", False, "block of calls"),
            (f"b\n\n<｜DSML｜tool_calls>\n</｜DSML｜tool_calls>{EOS}", False, "block of calls"),
            (f"b\n\n<｜DSML｜tool_calls{EOS}", False, "content: the marker"),
            (f"b{BLOCK.removeprefix(chr(10) * 2)}{EOS}", False, "before a block of calls"),
            ("b" + CALLS.format("free text") + EOS, False, "parameter"),
            (
                "b"
                + CALLS.format('<｜DSML｜parameter name="a" string="maybe">1</｜DSML｜parameter>')
                + EOS,
                False,
                "parameter",
            ),
            (
                "b"
                + CALLS.format(
                    "\n".join(
                        ['<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>'] * 2
                    )
                )
                + EOS,
                False,
                "'a' twice",
            ),
        ],
    )
    def test_what_does_not_fit_is_refused(self, text, thinking, message) -> None:
        with pytest.raises(ValueError, match=message):
            parse(V4, text, thinking=thinking)

    def test_values_that_are_no_strings_are_passed_on_as_written(self) -> None:
        text = (
            "b"
            + CALLS.format('<｜DSML｜parameter name="a" string="false">{bad</｜DSML｜parameter>')
            + EOS
        )
        assert parse(V4, text, thinking=False).calls[0].arguments == '{"a": {bad}'


class TestMessages:
    """What the server makes of a completion's text, its EOS already taken off."""

    def message(self, text, *, thinking=True, ended=True):
        return assistant_message(V4, text, thinking=thinking, ended=ended)

    def test_calls_and_reasoning_are_openais(self) -> None:
        message = self.message(f"why</think>b{TestParser.BLOCK}")
        assert (message["reasoning_content"], message["content"]) == ("why", "b")
        (made,) = message["tool_calls"]
        assert made["function"] == {"name": "f", "arguments": '{"a": 1}'}

    def test_what_the_parser_refuses_is_content_behind_its_reasoning(self) -> None:
        assert self.message("why</think>b", ended=False)["content"] == "b"
        assert self.message("why", ended=False)["reasoning_content"] == "why"
        assert self.message("b</think>", thinking=False)["content"] == "b</think>"


class TestConstants:
    def test_bad_files_are_named(self, tmp_path) -> None:
        path = tmp_path / "encoding.json"
        with pytest.raises(ValueError, match="cannot be used"):
            read_constants(path)
        raw = json.loads(NANO.read_text(encoding="utf-8"))
        path.write_text(json.dumps(raw | {"format": "llama"}))
        with pytest.raises(ValueError, match="format is 'llama'"):
            read_constants(path)
        raw.pop("dsml")
        path.write_text(json.dumps(raw))
        with pytest.raises(ValueError, match="no key 'dsml'"):
            read_constants(path)
