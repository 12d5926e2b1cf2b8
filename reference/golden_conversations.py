"""The conversations behind the golden vectors: each shows one rule that servers have got wrong."""

from typing import Any

Case = dict[str, Any]
BY_ITSELF = "as the server does by itself"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city, in °C",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}


def _user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def _assistant(text: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def _call(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(text: str, call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


def conversations(efforts: tuple[str, ...]) -> list[Case]:
    """Requests by topic, without their prompts.

    One says nothing of thinking, to show what the server does by itself; all others say it.
    """
    topics = {
        "turns": _turns(),
        "reasoning": _reasoning(efforts),
        "tools": _tools(),
        "results": _results(),
    }
    return [
        {"topic": topic, "name": name, **({} if name == BY_ITSELF else {"thinking": False}), **case}
        for topic, cases in topics.items()
        for name, case in cases.items()
    ]


def _turns() -> dict[str, Case]:
    told = [_user("The code of the tower is 4711."), _assistant("I have noted it.")]
    asked = _user("What is the code?")
    return {
        "one question": {"messages": [asked]},
        "system text": {"messages": [_system("Be brief."), asked]},
        "empty system text": {"messages": [_system(""), asked]},
        "system text in the middle": {"messages": [*told, _system("Be brief."), asked]},
        "neighbouring questions": {"messages": [_user("First."), _user("Second."), asked]},
        "answers end": {"messages": [*told, asked]},
        "spaces and line ends stay": {"messages": [_user("  two spaces\n\n\tand a tab \n")]},
        "other scripts": {"messages": [_user("Grüße, 你好, здравствуйте, 🙂🏽 — é")]},
        "text parts": {
            "messages": [_user([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])]
        },
        "five turns": {
            "messages": [
                _system("You keep a log book."),
                *(
                    turn
                    for n in range(4)
                    for turn in (_user(f"Fact {n}."), _assistant(f"Noted {n}."))
                ),
                asked,
            ]
        },
    }


def _reasoning(efforts: tuple[str, ...]) -> dict[str, Case]:
    thought = _assistant("Four.", reasoning_content="Two and two make four.")
    talk = [_user("2 + 2?"), thought, _user("And 3 + 3?")]
    developer = {"role": "developer", "content": "Answer in words."}
    cases: dict[str, Case] = {
        BY_ITSELF: {"messages": [_user("2 + 2?")]},
        "on": {"messages": [_user("2 + 2?")], "thinking": True},
        "off": {"messages": [_user("2 + 2?")], "thinking": False},
        "dropped from the past": {"messages": talk, "thinking": True},
        "not shown without thinking": {"messages": talk, "thinking": False},
        "developer of the past leaves": {
            "messages": [developer, *talk],
            "thinking": True,
        },
        "developer stays without thinking": {"messages": [developer, *talk], "thinking": False},
        "kept with tools": {"messages": talk, "tools": [WEATHER], "thinking": True},
        "none with tools": {
            "messages": [_user("2 + 2?"), _assistant("Four."), _user("And 3 + 3?")],
            "tools": [WEATHER],
            "thinking": True,
        },
    }
    for effort in efforts:
        cases[f"effort {effort}"] = {
            "messages": [_system("Be brief."), _user("2 + 2?")],
            "thinking": True,
            "effort": effort,
        }
    return cases


def _tools() -> dict[str, Case]:
    asked = _user("What is the weather in Zürich?")
    every_type = (
        '{"city": "Zürich \\"old town\\"\\n</", "days": 3, "wind": 1.5, "snow": false, '
        '"unit": null, "more": {"a": [1, "b"]}}'
    )
    called = _assistant(None, tool_calls=[_call("get_weather", every_type, "call_1")])
    two = [_call("get_time", "{}", "call_1"), _call("get_weather", '{"city": "Bern"}', "call_2")]
    return {
        "one tool": {"messages": [asked], "tools": [WEATHER]},
        "two tools after a system text": {
            "messages": [_system("Be brief."), asked],
            "tools": [WEATHER, TIME],
        },
        "after an empty system text": {"messages": [_system(""), asked], "tools": [TIME]},
        "arguments of every type": {
            "messages": [asked, called, _result("17", "call_1")],
            "tools": [WEATHER],
        },
        "two calls after a text": {
            "messages": [
                asked,
                _assistant("I look.", tool_calls=two),
                _result("12:00", "call_1"),
                _result("17", "call_2"),
            ],
            "tools": [WEATHER, TIME],
        },
        "calls of the past without tools": {
            "messages": [asked, called, _result("17", "call_1")],
            "thinking": True,
        },
    }


def _results() -> dict[str, Case]:
    asked = _user("Time and weather?")
    calls = [_call("get_time", "{}", "call_t"), _call("get_weather", '{"city": "Bern"}', "call_w")]
    called = _assistant("", reasoning_content="I need both.", tool_calls=calls)
    time, weather = _result("12:00", "call_t"), _result("17 °C", "call_w")
    tools = [WEATHER, TIME]
    return {
        "in the order of the calls": {"messages": [asked, called, weather, time], "tools": tools},
        "a question joins them": {
            "messages": [asked, called, time, weather, _user("Well?")],
            "tools": tools,
            "thinking": True,
        },
        "an answer and a new question": {
            "messages": [
                asked,
                called,
                weather,
                time,
                _assistant("Noon, 17 °C."),
                _user("Thanks."),
            ],
            "tools": tools,
            "thinking": True,
        },
        "text of a result stays as it is": {
            "messages": [
                _user("Time?"),
                _assistant(None, tool_calls=calls[:1]),
                _result('{"t": "12:00"}\n  <b>noon</b> ', "call_t"),
            ],
            "tools": [TIME],
        },
    }
