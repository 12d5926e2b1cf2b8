"""Breakages of what a server tells in one body."""

import json

from fault_hooks import CHAT
from fault_transport import Told, is_stream, one_shot


def more_completion_tokens(body):
    body["usage"]["completion_tokens"] += 1


def more_total_tokens(body):
    body["usage"]["total_tokens"] += 1


def finish_stop_on_calls(asked, told):
    """B159: the finish reason stays 'stop' though a tool was called."""
    body = told.body.replace(b'"tool_calls"}', b'"stop"}')
    body = body.replace(b'"finish_reason":"tool_calls"', b'"finish_reason":"stop"')
    return Told(told.status, told.kind, body)


def spilled_reasoning(body):
    """B160: the last token of a cut reasoning goes to the content."""
    choice = body["choices"][0]
    thought = choice["message"].get("reasoning_content")
    if thought and choice["finish_reason"] == "length":
        choice["message"]["content"] = thought[-1]


def think_mark(body):
    """B163: a closing mark leaks into the content."""
    message = body["choices"][0]["message"]
    if message.get("reasoning_content") and message.get("content"):
        message["content"] = f"</think>{message['content']}"


def arguments_as_object(body):
    for call in body["choices"][0]["message"].get("tool_calls") or ():
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])


def content_logprobs(body):
    block = body["choices"][0].get("logprobs") or {}
    return block.get("content") or []


def shifted_logprobs(body):
    entries = content_logprobs(body)
    values = [-9.0, *(entry["logprob"] for entry in entries)]
    for entry, value in zip(entries, values, strict=False):
        entry["logprob"] = value


def first_trajectory(body):
    """B117: logprobs of a retracted run are still there: more than there are tokens."""
    entries = content_logprobs(body)
    if len(entries) > 1:
        entries[:0] = [less_likely(entry) for entry in entries[:4]]


def less_likely(entry):
    """Return a token's entry as another run had it, by a nat."""
    tops = [{**top, "logprob": top["logprob"] - 1.0} for top in entry.get("top_logprobs", ())]
    return {**entry, "logprob": entry["logprob"] - 1.0, "top_logprobs": tops}


def uniform_first(body):
    """B134: the first token has -log(V) everywhere."""
    for entry in content_logprobs(body)[:1]:
        entry["logprob"] = -7.15
        for top in entry.get("top_logprobs", ()):
            top["logprob"] = -7.15


def shifted_prompt_logprobs(path, asked, told):
    """B132: the logprob of given text is taken from the next position's logits."""
    if path != "/v1/completions" or told.status != 200 or not asked.get("prompt_logprobs"):
        return told

    def edit(body):
        for place in (body, *body["choices"]):
            if place.get("prompt_logprobs"):
                values = place["prompt_logprobs"]
                place["prompt_logprobs"] = [None, *values[2:], values[-1]]

    return one_shot(told, edit)


def encoded_twice(path, asked, told):
    """B141: arguments of earlier calls are encoded as JSON again, as the rendered prompt shows."""
    if path != "/detokenize":
        return told

    def edit(body):
        body["prompt"] = body["prompt"].replace("Oslo", r"{\"city\": \"Oslo\"}")

    return one_shot(told, edit)


def says_stop(asked, told):
    if "max_tokens" in asked or "max_completion_tokens" in asked or is_stream(told):
        return told
    return one_shot(told, lambda body: body["choices"][0].update(finish_reason="stop"))


def failing_on_malformed(path, asked, told):
    if path == CHAT and asked is None:
        return Told(500, "text/plain", b"Internal Server Error")
    return told


def partial_under_load(asked, told):
    """A stream that the server broke off is ended as if it were complete."""
    text = str(asked["messages"][-1].get("content"))
    if is_stream(told) or not (text.startswith("Repeat exactly: ") and text[-11:-6].isdigit()):
        return told

    def edit(body):
        message = body["choices"][0]["message"]
        message["content"] = message["content"][:3]

    return one_shot(told, edit)
