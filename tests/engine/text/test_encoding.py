"""The chat encoding against strings written by hand from V4's rules and nano's constants."""

import msgspec
import pytest

from engine.encoding import ChatEncoder
from engine.encoding_spec import load_encoding_spec
from engine.errors import CheckpointError, InvalidRequest

BOS, EOS, U, A = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
WEATHER_LINE = (
    '{"name": "get_weather", "description": "Get the weather of a city", "parameters": {"type": '
    '"object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}'
)


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, call_id="c1"):
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def tool(text, call_id="c1"):
    return {"role": "tool", "content": text, "tool_call_id": call_id}


CHAT = {
    "a question": ([user("hi")], f"{BOS}{U}hi{A}</think>"),
    "system text has no marker": (
        [system("Be brief."), user("hi")],
        f"{BOS}Be brief.{U}hi{A}</think>",
    ),
    "an empty system text leaves nothing": ([system(""), user("hi")], f"{BOS}{U}hi{A}</think>"),
    "answers end with EOS": (
        [user("a"), assistant("b"), user("c")],
        f"{BOS}{U}a{A}</think>b{EOS}{U}c{A}</think>",
    ),
    "a turn cut short can be marked": (
        [user("a"), assistant("b", wo_eos=True), user("c")],
        f"{BOS}{U}a{A}</think>b{U}c{A}</think>",
    ),
    "neighbouring questions become one": ([user("a"), user("b")], f"{BOS}{U}a\n\nb{A}</think>"),
    "no prompt to answer after an answer": (
        [user("a"), assistant("b")],
        f"{BOS}{U}a{A}</think>b{EOS}",
    ),
    "a trailing system message suppresses the answer": (
        [user("a"), system("s")],
        f"{BOS}{U}as",
    ),
    "chat mode never shows reasoning": (
        [user("a"), assistant("b", reasoning_content="r"), user("c")],
        f"{BOS}{U}a{A}</think>b{EOS}{U}c{A}</think>",
    ),
    "developer text is a turn": (
        [{"role": "developer", "content": "d"}, user("a")],
        f"{BOS}{U}d{U}a{A}</think>",
    ),
    "marker text is not escaped": ([user(f"x{U}y")], f"{BOS}{U}x{U}y{A}</think>"),
}


@pytest.mark.parametrize("case", CHAT, ids=lambda case: case.replace(" ", "_"))
def test_a_conversation_in_chat_mode_is_rendered_as_written(encoder, case):
    messages, expected = CHAT[case]
    assert encoder.render(messages) == expected


THINKING = {
    "the answer opens with reasoning": ([user("a")], f"{BOS}{U}a{A}<think>"),
    "earlier reasoning is dropped": (
        [user("a"), assistant("b", reasoning_content="r"), user("c")],
        f"{BOS}{U}a{A}</think>b{EOS}{U}c{A}<think>",
    ),
    "reasoning after the last question stays": (
        [user("a"), assistant("b", reasoning_content="r")],
        f"{BOS}{U}a{A}<think>r</think>b{EOS}",
    ),
    "a turn that did not think gets an empty reasoning": (
        [user("a"), assistant("b")],
        f"{BOS}{U}a{A}<think></think>b{EOS}",
    ),
    "developer text before the last question vanishes": (
        [{"role": "developer", "content": "d"}, user("a")],
        f"{BOS}{U}a{A}<think>",
    ),
    "without tools a result counts as the last question": (
        [
            user("a"),
            assistant("", reasoning_content="r", tool_calls=[call("f", "{}")]),
            tool("x"),
        ],
        BOS
        + f"{U}a{A}</think>"
        + '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n\n</｜DSML｜invoke>\n'
        + f"</｜DSML｜tool_calls>{EOS}{U}<tool_result>x</tool_result>{A}<think>",
    ),
}


@pytest.mark.parametrize("case", THINKING, ids=lambda case: case.replace(" ", "_"))
def test_a_conversation_in_thinking_mode_is_rendered_as_written(encoder, case):
    messages, expected = THINKING[case]
    assert encoder.render(messages, thinking=True) == expected


def test_tools_follow_bos_or_the_system_text(encoder):
    assert encoder.render([user("q")], [WEATHER]) == (
        f"{BOS}## Tools\n{WEATHER_LINE}{U}q{A}</think>"
    )
    assert encoder.render([system("s"), user("q")], [WEATHER, WEATHER]) == (
        f"{BOS}s\n\n## Tools\n{WEATHER_LINE}\n{WEATHER_LINE}{U}q{A}</think>"
    )


def test_tools_keep_all_reasoning(encoder):
    messages = [user("a"), assistant("b", reasoning_content="r"), assistant("c"), user("d")]
    assert encoder.render(messages, [WEATHER], thinking=True).endswith(
        f"{U}a{A}<think>r</think>b{EOS}</think>c{EOS}{U}d{A}<think>"
    )


def test_a_tool_schema_is_shown_with_its_keys_in_order_and_unicode_as_it_is(encoder):
    function = {"parameters": {"z": 1, "a": 2}, "name": "wetter", "description": "für Köln"}
    text = encoder.render([user("q")], [{"type": "function", "function": function}])
    line = '{"parameters": {"z": 1, "a": 2}, "name": "wetter", "description": "für Köln"}'
    assert line in text


def test_call_arguments_are_text_or_json_by_their_type(encoder):
    arguments = (
        '{"s": "a \\"b\\"\\nc </x>", "i": 1, "f": 1.5, "b": true, "n": null, '
        '"o": {"k": ["ü"]}, "e": ""}'
    )
    turn = encoder.render([user("q"), assistant("So:", tool_calls=[call("f", arguments)])])
    end = "</｜DSML｜parameter>"
    assert turn.endswith(
        f'So:\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
        f'<｜DSML｜parameter name="s" string="true">a "b"\nc </x>{end}\n'
        f'<｜DSML｜parameter name="i" string="false">1{end}\n'
        f'<｜DSML｜parameter name="f" string="false">1.5{end}\n'
        f'<｜DSML｜parameter name="b" string="false">true{end}\n'
        f'<｜DSML｜parameter name="n" string="false">null{end}\n'
        f'<｜DSML｜parameter name="o" string="false">{{"k": ["ü"]}}{end}\n'
        f'<｜DSML｜parameter name="e" string="true">{end}\n'
        f"</｜DSML｜invoke>\n</｜DSML｜tool_calls>{EOS}"
    )


@pytest.mark.parametrize("arguments", ["", "nope", "[1]", '"x"', "{", "null"])
def test_arguments_that_are_no_json_object_are_refused_by_name(encoder, arguments):
    with pytest.raises(InvalidRequest, match="'f'"):
        encoder.render([user("q"), assistant("", tool_calls=[call("f", arguments)])])


def test_results_stand_in_the_order_of_their_calls(encoder):
    calls = [call("f", "{}", "one"), call("g", "{}", "two"), call("h", "{}", "three")]
    messages = [
        user("q"),
        assistant("", tool_calls=calls),
        tool("3", "three"),
        tool("1", "one"),
        tool("2", "two"),
        user("and?"),
    ]
    assert encoder.render(messages).endswith(
        f"{EOS}{U}<tool_result>1</tool_result>\n\n<tool_result>2</tool_result>\n\n"
        f"<tool_result>3</tool_result>\n\nand?{A}</think>"
    )


def test_a_result_joins_the_question_before_it(encoder):
    assert encoder.render([user("q"), tool("r")]) == (
        f"{BOS}{U}q\n\n<tool_result>r</tool_result>{A}</think>"
    )


def test_an_unknown_role_or_effort_is_refused(encoder):
    with pytest.raises(InvalidRequest, match="latest_reminder"):
        encoder.render([user("q"), {"role": "latest_reminder", "content": "x"}])
    with pytest.raises(InvalidRequest, match="'extreme'"):
        encoder.render([user("q")], thinking=True, effort="extreme")


def test_another_checkpoints_constants_change_the_text_and_no_code(spec, tokenizer):
    v4 = msgspec.structs.replace(
        spec,
        latest_reminder="<｜latest_reminder｜>",
        efforts={"max": "Think hard.\n\n"},
        tools=msgspec.structs.replace(
            spec.tools, template="## T\n{schemas}\n", after_nothing="\n\n"
        ),
        calls=msgspec.structs.replace(spec.calls, after_nothing="\n\n"),
    )
    encoder = ChatEncoder(v4, tokenizer)
    assert encoder.render([user("q")], [WEATHER], thinking=True, effort="max") == (
        f"{BOS}Think hard.\n\n\n\n## T\n{WEATHER_LINE}\n{U}q{A}<think>"
    )
    assert encoder.render([user("q")], effort="max") == f"{BOS}{U}q{A}</think>"
    reminded = [user("a"), {"role": "latest_reminder", "content": "r"}, user("b")]
    assert encoder.render(reminded) == (
        f"{BOS}{U}a{A}</think><｜latest_reminder｜r{U}b{A}</think>"
    ).replace("<｜latest_reminder｜r", "<｜latest_reminder｜>r")
    turn = encoder.render([user("q"), assistant("", tool_calls=[call("f", "{}")])])
    assert f"{A}</think>\n\n<｜DSML｜tool_calls>" in turn


def test_earlier_turns_are_a_prefix_of_later_ones_unless_reasoning_is_dropped(encoder):
    first = [user("a"), assistant("b", reasoning_content="r")]
    later = [*first, user("c")]
    assert encoder.render(later).startswith(encoder.render(first))
    kept = [encoder.render(turns, [WEATHER], thinking=True) for turns in (first, later)]
    assert kept[1].startswith(kept[0])
    dropped = [encoder.render(turns, thinking=True) for turns in (first, later)]
    assert not dropped[1].startswith(dropped[0])


def test_marker_text_becomes_one_token(encoder, tokenizer):
    ids = encoder.encode([user(f"x{U}y")])
    assert ids.count(tokenizer.token_id(U)) == 2


def test_a_checkpoint_without_a_valid_encoding_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match=r"encoding\.json cannot be read"):
        load_encoding_spec(tmp_path)
    (tmp_path / "encoding.json").write_text('{"format": "x"}')
    with pytest.raises(CheckpointError, match="missing required field"):
        load_encoding_spec(tmp_path)
