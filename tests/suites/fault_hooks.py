"""Where a fault takes hold: a chat asked, a chat told as a body, or as a stream."""

from fault_transport import Fault, is_stream, one_shot

CHAT = "/v1/chat/completions"


def fault(name, *red, ask=None, tell=None):
    hooks = {k: v for k, v in (("ask", ask), ("tell", tell)) if v is not None}
    return Fault(name=name, red=frozenset(red), **hooks)


def on_chat(edit):
    """Change successful chat answers only; streams as events, others as a body."""

    def tell(path, asked, told):
        return edit(asked, told) if path == CHAT and told.status == 200 and asked else told

    return tell


def on_chat_stream(edit):
    return on_chat(lambda asked, told: edit(asked, told) if is_stream(told) else told)


def on_one_shot(edit):
    return on_chat(lambda asked, told: told if is_stream(told) else one_shot(told, edit))


def delta(event):
    choices = event.get("choices") or [{}]
    return choices[0].get("delta") or {}


def shape_of(name, value):
    return on_one_shot(lambda body: body.update({name: value}))
