"""Breakages of public servers, and the claims of the plumbing suite that each must turn red."""

import json

from fault_transport import Fault, Told, each_event, events_of, is_stream, one_shot, streamed

CHAT = "/v1/chat/completions"
STOPS = {
    "stop_string_is_excluded",
    "stop_string_is_excluded_from_streams",
    "first_of_several_stops_counts",
}
EXACT = {f"max_tokens_is_exact[{n}]" for n in (1, 2, 7, 16)}


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


# ---- streams


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


# ---- bodies


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
    values = [-3.0, *(entry["logprob"] for entry in entries)]
    for entry, value in zip(entries, values, strict=False):
        entry["logprob"] = value


def first_trajectory(body):
    """B117: logprobs of a retracted run are still there: more than there are tokens."""
    entries = content_logprobs(body)
    if len(entries) > 6:
        entries[:0] = entries[:4]


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


# ---- requests


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


def encoded_twice(path, asked, told):
    """B141: arguments of earlier calls are encoded as JSON again, as the rendered prompt shows."""
    if path != "/detokenize":
        return told

    def edit(body):
        body["prompt"] = body["prompt"].replace("Oslo", r"{\"city\": \"Oslo\"}")

    return one_shot(told, edit)


def hidden_cap(path, body):
    """B168: without max_tokens a small default holds."""
    if path == CHAT and "max_tokens" not in body and "max_completion_tokens" not in body:
        body = {**body, "max_tokens": 12}
    return body


def says_stop(asked, told):
    if "max_tokens" in asked or "max_completion_tokens" in asked or is_stream(told):
        return told
    return one_shot(told, lambda body: body["choices"][0].update(finish_reason="stop"))


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


def shape_of(name, value):
    return on_one_shot(lambda body: body.update({name: value}))


FAULTS = (
    fault("healthy"),
    fault(
        "drops a delta",
        "begun_answer_goes_on_alike",
        "plain_answer",
        "cut_answer",
        "reasoning",
        "other_scripts",
        "stop_string_is_excluded_from_streams",
        "nothing_is_held_back_for_a_stop_that_never_comes",
        "characters_survive_chunks",
        tell=on_chat_stream(drop_a_delta),
    ),
    fault(
        "finishes twice",
        "finish_reason_comes_once",
        "stream_gives_the_same",
        tell=on_chat_stream(finish_twice),
    ),
    fault("never done", "events_are_framed_and_done_once", tell=on_chat_stream(without_done)),
    fault("no role", "first_delta_has_the_role", tell=on_chat_stream(without_role)),
    fault("an id a chunk", "chunks_name_one_answer", tell=on_chat_stream(other_ids)),
    fault(
        "no usage in streams",
        "usage_comes_once_when_asked",
        "stream_tells_the_same_usage",
        tell=on_chat_stream(without_usage),
    ),
    fault(
        "usage unasked",
        "no_chunk_without_choice_unless_usage_is_asked",
        tell=on_chat_stream(usage_always),
    ),
    fault(
        "says stop in streams",
        "begun_answer_goes_on_alike",
        "cut_answer",
        "nothing_is_held_back_for_a_stop_that_never_comes",
        "nothing_spills_when_reasoning_is_cut",
        *EXACT,
        tell=on_chat_stream(says_stop_in_stream),
    ),
    fault(
        "U+FFFD in streams",
        "other_scripts",
        "characters_survive_chunks",
        tell=on_chat_stream(broken_emoji),
    ),
    fault(
        "arguments lost in streams",
        "tool_call",
        "deltas_rebuild_the_call",
        tell=on_chat_stream(lost_arguments),
    ),
    fault("wrong total", "usage_adds_up", tell=on_one_shot(more_total_tokens)),
    fault(
        "one token too many",
        "ids_spell_the_answer",
        "usage_adds_up",
        "stream_tells_the_same_usage",
        "completion_tokens_are_those_generated",
        "max_completion_tokens_is_obeyed",
        "plain_answer",
        "cut_answer",
        "reasoning",
        "tool_call",
        "other_scripts",
        *EXACT,
        tell=on_one_shot(more_completion_tokens),
    ),
    fault(
        "stop where tools are called",
        "call_says_so",
        "deltas_rebuild_the_call",
        tell=on_chat(finish_stop_on_calls),
    ),
    fault(
        "reasoning spills",
        "nothing_spills_when_reasoning_is_cut",
        tell=on_one_shot(spilled_reasoning),
    ),
    fault(
        "closing mark leaks",
        "reasoning_is_apart_from_content",
        "reasoning",
        tell=on_one_shot(think_mark),
    ),
    fault(
        "arguments as an object",
        "arguments_are_json_of_the_schema",
        tell=on_one_shot(arguments_as_object),
    ),
    fault(
        "logprobs of the token before",
        "sampled_tokens_have_one_value",
        "values_are_of_the_chosen_token",
        "given_text_is_scored_as_generated",
        tell=on_one_shot(shifted_logprobs),
    ),
    fault(
        "logprobs of a retracted run",
        "tokens_within_a_character",
        "tokens_spell_the_answer",
        "stream_gives_the_same",
        "completion_tokens_are_those_generated",
        "given_text_is_scored_as_generated",
        tell=on_one_shot(first_trajectory),
    ),
    fault(
        "uniform first token",
        "values_are_of_the_chosen_token",
        "given_text_is_scored_as_generated",
        tell=on_one_shot(uniform_first),
    ),
    fault(
        "given text scored one late",
        "given_text_is_scored_as_generated",
        "given_tokens_have_their_own_logprob",
        tell=shifted_prompt_logprobs,
    ),
    fault("seed ignored", "seed_is_a_text", "seed_repeats", ask=without("seed")),
    fault("stop ignored", *STOPS, "stop_is_a_number", ask=without("stop")),
    fault("top_p ignored", "top_p_matters", "top_p_above_one", ask=without("top_p")),
    fault(
        "penalties ignored",
        "presence_penalty_matters",
        "frequency_penalty_is_a_text",
        "frequency_penalty_matters",
        ask=without("frequency_penalty", "presence_penalty"),
    ),
    fault(
        "always greedy",
        "temperature_matters",
        "seeds_differ",
        "negative_temperature",
        "temperature_is_a_text",
        ask=greedy_always,
    ),
    fault(
        "logprobs ignored",
        "zero_alternatives_leave_the_logprobs",
        "tokens_within_a_character",
        "alternatives_are_the_likeliest",
        "bytes_spell_their_token",
        "sampled_tokens_have_one_value",
        "no_alternatives_unless_asked",
        "tokens_spell_the_answer",
        "values_are_of_the_chosen_token",
        "as_many_alternatives_as_asked",
        "stream_gives_the_same",
        "given_text_is_scored_as_generated",
        "too_many_top_logprobs",
        ask=without("logprobs", "top_logprobs"),
    ),
    fault("tool_choice ignored", "tool_choice_none_forbids", ask=without("tool_choice")),
    fault("newer limit ignored", "max_completion_tokens_is_obeyed", ask=default_cap),
    fault("hidden cap", "no_hidden_limit", ask=hidden_cap, tell=on_chat(says_stop)),
    fault("last turn only", "earlier_turns_are_rendered", ask=messages_changed(last_turn)),
    fault("last part only", "text_parts_count_like_a_text", ask=messages_changed(last_part)),
    fault("no developer", "developer_text_is_rendered", ask=messages_changed(no_developer)),
    fault(
        "arguments encoded twice",
        "arguments_of_the_history_are_rendered_once",
        tell=encoded_twice,
    ),
    fault("any model", "unknown_model", ask=any_model),
    fault("prompt cut in silence", "prompt_at_the_limit", ask=cut_prompt),
    fault(
        "500 on malformed JSON",
        "malformed_json",
        "empty_body",
        "body_is_no_object",
        "deep_nesting",
        tell=failing_on_malformed,
    ),
    fault("partial under load", "answers_are_whole_or_refused", tell=on_chat(partial_under_load)),
    fault("another object", "chat_completion_names_itself", tell=shape_of("object", "chat")),
)
