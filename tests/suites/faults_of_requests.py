"""Breakages of what a server makes of a request."""

from fault_hooks import CHAT


def without(*names):
    def ask(path, body):
        return {k: v for k, v in body.items() if k not in names} if path == CHAT else body

    return ask


def messages_changed(change):
    """Change the messages of chats, and of what is tokenized as one."""

    def ask(path, body):
        messages = body.get("messages")
        if isinstance(messages, list) and all(isinstance(m, dict) for m in messages):
            body = {**body, "messages": change(messages)}
        return body

    return ask


def last_turn(messages):
    users = [at for at, m in enumerate(messages) if m.get("role") == "user"]
    if not users:
        return messages
    kept = [m for m in messages[: users[-1]] if m.get("role") in {"system", "developer"}]
    return [*kept, *messages[users[-1] :]]


def last_part(messages):
    """B140: only the last text part is kept."""
    return [
        {**m, "content": m["content"][-1:]} if isinstance(m.get("content"), list) else m
        for m in messages
    ]


def no_developer(messages):
    """B138: the text of the developer vanishes."""
    return [m for m in messages if m.get("role") != "developer"] or messages


def hidden_cap(path, body):
    """B168: without max_tokens a small default holds."""
    if path == CHAT and "max_tokens" not in body and "max_completion_tokens" not in body:
        body = {**body, "max_tokens": 12}
    return body


def default_cap(path, body):
    """B170: only max_tokens is read, the newer name is lost."""
    if path == CHAT and "max_completion_tokens" in body:
        body = {k: v for k, v in body.items() if k != "max_completion_tokens"} | {"max_tokens": 48}
    return body


def greedy_always(path, body):
    return {**body, "temperature": 0} if path == CHAT and "temperature" in body else body


def any_model(path, body):
    return (
        {**body, "model": "nano"} if path == CHAT and isinstance(body.get("model"), str) else body
    )


def cut_prompt(path, body):
    """B172: a prompt beyond the window is cut to its end, and answered."""
    messages = body.get("messages")
    if path == CHAT and isinstance(messages, list) and len(str(messages)) > 40_000:
        cut = [{**messages[-1], "content": messages[-1]["content"][-200:]}]
        body = {**body, "messages": cut}
    return body
