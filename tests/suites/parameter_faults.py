"""What servers do with parameters, formats and completions, and the claims that must go red."""

import json
from itertools import pairwise

from fault_hooks import CHAT, fault, on_one_shot
from fault_transport import Told, each_event, is_stream, one_shot
from faults_of_requests import without

COMPLETIONS = "/v1/completions"


def on_path(path, change):
    """Change what is asked on one path."""

    def ask(asked_path, body):
        return change(body) if asked_path == path else body

    return ask


def without_on(path, *names):
    return on_path(path, lambda body: {k: v for k, v in body.items() if k not in names})


def parts_kept(*kinds):
    """Content parts of other kinds vanish."""

    def change(body):
        messages = body.get("messages")
        if not isinstance(messages, list):
            return body
        return {**body, "messages": [_with_parts(m, kinds) for m in messages]}

    return on_path(CHAT, change)


def _with_parts(message, kinds):
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    kept = [part for part in message["content"] if part.get("type") in kinds]
    return {**message, "content": kept}


def failing_on(name):
    """A request with that field is answered 500; all others are well."""

    def tell(path, asked, told):
        if path == CHAT and asked and name in asked:
            return Told(500, "text/plain", b"Internal Server Error")
        return told

    return tell


def empty_stop_ends(path, asked, told):
    """An empty stop string is met by every text at once."""
    if path != CHAT or not asked or asked.get("stop") != [""]:
        return told
    choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}
    return Told(200, "application/json", json.dumps({"choices": [choice]}).encode())


def empty_list_ends(path, asked, told):
    if path != CHAT or not asked or asked.get("stop") != []:
        return told
    return one_shot(told, lambda body: body["choices"][0]["message"].update(content=""))


def one_at_least(body):
    return {**body, "max_tokens": 1} if body.get("max_tokens") == 0 else body


def alternatives_always(body):
    if body.get("logprobs") is True and body.get("top_logprobs") is None:
        return {**body, "top_logprobs": 5}
    return body


def zero_is_none(body):
    if body.get("top_logprobs") == 0:
        return {k: v for k, v in body.items() if k not in {"logprobs", "top_logprobs"}}
    return body


def completions_told(edit):
    def tell(path, asked, told):
        is_body = path == COMPLETIONS and told.status == 200 and not is_stream(told)
        return one_shot(told, edit) if is_body else told

    return tell


def as_chat(body):
    if body["choices"][0].get("logprobs"):
        body["choices"][0]["logprobs"] = {"content": [{"token": "a", "logprob": -0.5}]}


def first_piece_lost(path, asked, told):
    if path != COMPLETIONS or not is_stream(told):
        return told
    seen = []

    def edit(event):
        if event["choices"] and event["choices"][0].get("text") and not seen:
            seen.append(True)
            event["choices"][0]["text"] = ""
        return event

    return each_event(told, edit)


def prefix_in_streams(path, asked, told):
    """A stream repeats the beginning of the answer that it was given; one piece does not."""
    begun = path == CHAT and asked and _last(asked).get("role") == "assistant"
    if not begun or not is_stream(told):
        return told
    seen = []

    def edit(event):
        delta = event["choices"][0].get("delta", {}) if event["choices"] else {}
        if delta.get("content") and not seen:
            seen.append(True)
            delta["content"] = _last(asked)["content"] + delta["content"]
        return event

    return each_event(told, edit)


def no_system(body):
    """The text of the system vanishes, and its turn stays."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return body
    kept = [{**m, "content": "-"} if m.get("role") == "system" else m for m in messages]
    return {**body, "messages": kept}


def _last(asked):
    messages = asked.get("messages")
    found = messages[-1] if isinstance(messages, list) and messages else {}
    return found if isinstance(found, dict) else {}


def bytes_of_the_next(body):
    content = (body["choices"][0].get("logprobs") or {}).get("content") or []
    for entry, other in pairwise(content):
        entry["bytes"] = other["bytes"]


def ids_one_short(body):
    for place in (body, *body["choices"]):
        if place.get("token_ids"):
            place["token_ids"] = place["token_ids"][:-1]


def higher_when_sampled(path, asked, told):
    """A sampled token has the logprob of after sampling, 0."""
    sampled = path == CHAT and asked and asked.get("temperature") and asked.get("logprobs")
    if not sampled or told.status != 200 or is_stream(told):
        return told

    def edit(body):
        for entry in body["choices"][0]["logprobs"]["content"]:
            entry["logprob"] = 0.0

    return one_shot(told, edit)


def drawn_first(path, asked, told):
    """The drawn token stands first among its alternatives, in the place of the likeliest."""
    sampled = path == CHAT and asked and asked.get("temperature") and asked.get("top_logprobs")
    if not sampled or told.status != 200 or is_stream(told):
        return told

    def edit(body):
        for entry in body["choices"][0]["logprobs"]["content"]:
            tops = [top for top in entry["top_logprobs"] if top["token"] != entry["token"]]
            drawn = {k: entry[k] for k in ("token", "logprob", "bytes")}
            entry["top_logprobs"] = [drawn, *tops[1:]]

    return one_shot(told, edit)


def one_entry_a_character(body):
    """Tokens within a character have no entry; the last stands for all, beside its own tops."""
    logprobs = body["choices"][0].get("logprobs")
    kept, held = [], []
    for entry in (logprobs or {}).get("content") or []:
        held += entry["bytes"] or []
        try:
            text = bytes(held).decode()
        except UnicodeDecodeError:
            continue
        kept.append({**entry, "token": text, "bytes": held})
        held = []
    if logprobs:
        logprobs["content"] = kept


def nothing_within_characters(body):
    """Tokens within a character have neither text nor bytes."""
    for entry in (body["choices"][0].get("logprobs") or {}).get("content") or []:
        for named in entry["top_logprobs"]:
            try:
                bytes(named["bytes"]).decode()
            except UnicodeDecodeError:
                named.update(token="", bytes=[])


FAULTS = (
    fault(
        "an entry a character", "tokens_within_a_character", tell=on_one_shot(one_entry_a_character)
    ),
    fault(
        "nothing within characters",
        "tokens_within_a_character",
        tell=on_one_shot(nothing_within_characters),
    ),
    fault("drawn token displaces", "alternatives_are_the_likeliest", tell=drawn_first),
    fault(
        "system dropped",
        "system_text_is_rendered",
        "prompt_tokens_equal_the_tokenizer[system_and_turns]",
        ask=on_path(CHAT, no_system),
    ),
    fault(
        "n ignored",
        "n_streams_every_choice",
        "n_gives_so_many_choices",
        "n_is_zero",
        ask=without("n"),
    ),
    fault("logit_bias ignored", "logit_bias_matters", ask=without("logit_bias")),
    fault("top_k ignored", "top_k_matters", ask=without("top_k")),
    fault("min_p ignored", "min_p_matters", ask=without("min_p")),
    fault(
        "response_format ignored",
        "json_schema_of_fields_is_obeyed_in_streams_too",
        "unknown_response_format_in_a_stream",
        "json_object_is_an_object",
        "json_schema_is_obeyed",
        "unknown_response_format",
        ask=without("response_format"),
    ),
    fault("images dropped", "images_are_read_or_refused", ask=parts_kept("text", "no_such_part")),
    fault("unknown parts dropped", "unknown_content_part", ask=parts_kept("text", "image_url")),
    fault("500 on logit_bias", "logit_bias_matters", tell=failing_on("logit_bias")),
    fault(
        "500 on response_format",
        "json_schema_of_fields_is_obeyed_in_streams_too",
        "unknown_response_format_in_a_stream",
        "json_object_is_an_object",
        "json_schema_is_obeyed",
        "unknown_response_format",
        tell=failing_on("response_format"),
    ),
    fault(
        "empty stop ends at once", "an_empty_stop_string_empties_no_answer", tell=empty_stop_ends
    ),
    fault("no stops end at once", "no_stop_strings_change_nothing", tell=empty_list_ends),
    fault("a token for none", "max_tokens_zero_makes_none", ask=on_path(CHAT, one_at_least)),
    fault(
        "alternatives unasked",
        "no_alternatives_unless_asked",
        ask=on_path(CHAT, alternatives_always),
    ),
    fault(
        "no logprobs without alternatives",
        "zero_alternatives_leave_the_logprobs",
        ask=on_path(CHAT, zero_is_none),
    ),
    fault(
        "value after sampling",
        "sampled_values_are_probabilities",
        "sampled_tokens_have_one_value",
        tell=higher_when_sampled,
    ),
    fault(
        "bytes of the next token",
        "logprobs_end_where_a_stop_string_cuts",
        "logprobs_stay_with_text_that_was_held_back",
        "tokens_within_a_character",
        "bytes_spell_their_token",
        "tokens_spell_the_answer",
        tell=on_one_shot(bytes_of_the_next),
    ),
    fault(
        "ids one short",
        "logprobs_end_where_a_stop_string_cuts",
        "logprobs_stay_with_text_that_was_held_back",
        "ids_spell_the_answer",
        tell=on_one_shot(ids_one_short),
    ),
    fault(
        "logprobs of completions as of chats",
        "completion_chunks_come_with_their_own_logprobs",
        "echo_comes_with_the_prompts_logprobs",
        "logprobs_have_their_own_shape",
        tell=completions_told(as_chat),
    ),
    fault(
        "echo ignored",
        "echo_comes_with_the_prompts_logprobs",
        "echo_gives_the_prompt",
        ask=without_on(COMPLETIONS, "echo"),
    ),
    fault(
        "completion begins late",
        "completion_chunks_come_with_their_own_logprobs",
        "echo_comes_with_the_prompts_logprobs",
        "stream_equals_one_shot",
        tell=first_piece_lost,
    ),
    fault("beginning repeated in streams", "begun_answer_goes_on_alike", tell=prefix_in_streams),
)
