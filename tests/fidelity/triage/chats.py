"""Chats that tests of triage begin with, and the file that one is given in."""

import json

CODES = [f"{number}{number}{number}{number}" for number in range(1, 10)]
CHAT = [
    turn
    for number, code in enumerate(CODES)
    for turn in (
        {"role": "user", "content": f"Box {number} holds {code}."},
        {"role": "assistant", "content": "I have noted that down."},
    )
] + [{"role": "user", "content": "What does box 3 hold?"}]


def user(text):
    return {"role": "user", "content": text}


def called(call_id="c1", name="f"):
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "4711"},
    ]


def chat_file(tmp_path, content):
    path = tmp_path / "chat.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def system(text):
    return {"role": "system", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


ASKED = user("What does box 3 hold?")
