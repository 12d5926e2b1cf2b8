"""Breakages of what a server streams."""

import json

from fault_hooks import delta
from fault_transport import Told, each_event, events_of, streamed


def drop_a_delta(asked, told):
    events = events_of(told)
    spoken = [
        i for i, e in enumerate(events) if e != "[DONE]" and delta(json.loads(e)).get("content")
    ]
    if len(spoken) > 3:
        del events[spoken[2]]
    return streamed(events, told)


def finish_twice(asked, told):
    events = events_of(told)
    at = next(i for i, e in enumerate(events) if '"finish_reason":"' in e.replace(" ", ""))
    return streamed([*events[: at + 1], events[at], *events[at + 1 :]], told)


def without_done(asked, told):
    return streamed(events_of(told)[:-1], told)


def without_role(asked, told):
    def edit(event):
        delta(event).pop("role", None)
        return event

    return each_event(told, edit)


def other_ids(asked, told):
    count = iter(range(10_000))
    return each_event(told, lambda event: {**event, "id": f"chatcmpl-{next(count)}"})


def without_usage(asked, told):
    return each_event(told, lambda event: None if event.get("usage") else event)


def usage_always(asked, told):
    if asked.get("stream_options"):
        return told
    events = events_of(told)
    first = json.loads(events[0])
    return streamed([*events[:-1], json.dumps({**first, "choices": []}), "[DONE]"], told)


def says_stop_in_stream(asked, told):
    """B171: an incomplete answer is a natural stop when it is streamed."""

    def edit(event):
        for choice in event.get("choices") or ():
            if choice.get("finish_reason") == "length":
                choice["finish_reason"] = "stop"
        return event

    return each_event(told, edit)


def broken_emoji(asked, told):
    """B154: characters of several tokens are lost in streams."""
    text = told.body.decode().replace("\U0001f680", "�").replace("\\ud83d\\ude80", "�")
    return Told(told.status, told.kind, text.encode())


def lost_arguments(asked, told):
    """B151: the name of a call is sent, its arguments are not."""

    def edit(event):
        for call in delta(event).get("tool_calls") or ():
            call["function"].pop("arguments", None)
        return event

    return each_event(told, edit)
