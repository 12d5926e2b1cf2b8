"""What servers do to what stands beside a text, to several choices, and to bad requests."""

from fault_hooks import CHAT, fault, on_chat_stream
from fault_transport import Told, each_event, is_stream, one_shot
from faults_of_requests import without
from parameter_faults import COMPLETIONS

BAD = range(400, 500)


def held_entries_lost(path, asked, told):
    """Where stop strings are looked for, the tokens of text that was held back have no entry."""
    if path != CHAT or not asked or not asked.get("logprobs") or not asked.get("stop"):
        return told
    if told.status != 200 or is_stream(told):
        return told

    def edit(body):
        del body["choices"][0]["logprobs"]["content"][3:5]

    return one_shot(told, edit)


def entries_run_on(path, asked, told):
    """Tokens that were generated behind the stop string have entries."""
    if path != CHAT or not asked or not asked.get("logprobs") or not asked.get("stop"):
        return told
    if told.status != 200 or is_stream(told):
        return told

    def edit(body):
        choice = body["choices"][0]
        if choice["finish_reason"] == "stop":
            choice["logprobs"]["content"] += choice["logprobs"]["content"][:3]

    return one_shot(told, edit)


def a_chunk_late(told):
    """Logprobs come with the next chunk, and those of the last not at all."""
    held = [None]

    def edit(event):
        for choice in event["choices"]:
            held.append(choice["logprobs"])
            choice["logprobs"] = held.pop(0)
        return event

    return each_event(told, edit)


def text_a_chunk_late(asked, told):
    """Where a stop string may come text is held back, and its tokens are not."""
    if not asked.get("logprobs") or not asked.get("stop"):
        return told
    held = [""]

    def edit(event):
        for choice in event["choices"]:
            held[0] += choice["delta"].get("content") or ""
            kept = 0 if choice["finish_reason"] else 2
            end = max(0, len(held[0]) - kept)
            choice["delta"]["content"], held[0] = held[0][:end], held[0][end:]
        return event

    return each_event(told, edit)


def late_in_completions(path, asked, told):
    return a_chunk_late(told) if path == COMPLETIONS and is_stream(told) else told


def offsets_from_zero(path, asked, told):
    """Each chunk counts its places anew."""
    if path != COMPLETIONS or not is_stream(told):
        return told

    def edit(event):
        for choice in event["choices"]:
            offsets = (choice["logprobs"] or {}).get("text_offset")
            if offsets:
                choice["logprobs"]["text_offset"] = [at - offsets[0] for at in offsets]
        return event

    return each_event(told, edit)


def no_entries_of_the_prompt(path, asked, told):
    if path != COMPLETIONS or not asked or not asked.get("echo") or is_stream(told):
        return told

    def edit(body):
        block = body["choices"][0]["logprobs"] or {}
        for name, values in block.items():
            block[name] = values[-asked["max_tokens"] :]

    return one_shot(told, edit)


def of_two(asked):
    """Two choices that can only be one text; others are drawn, and end anywhere."""
    return bool(asked) and asked.get("n") == 2 and asked.get("top_p", 1) < 0.5


def without_n(path, body):
    return {k: v for k, v in body.items() if k != "n"} if of_two(body) else body


def copied(path, asked, told):
    """A second choice is a copy of the first: without logprobs, and not counted."""
    if not of_two(asked) or told.status != 200:
        return told

    def add(body):
        body["choices"] += [{**c, "index": 1, "logprobs": None} for c in body["choices"]]
        return body

    return each_event(told, add) if is_stream(told) else one_shot(told, add)


def one_streamed(path, asked, told):
    """Of two choices a stream brings one; one piece brings both, counted."""
    if not of_two(asked) or told.status != 200 or is_stream(told):
        return told

    def add(body):
        body["choices"] += [{**choice, "index": 1} for choice in body["choices"]]
        body["usage"]["completion_tokens"] *= 2

    return one_shot(told, add)


def ends_after_the_headers(path, asked, told):
    """A stream has its 200 before the request is looked at, and ends without a word."""
    if asked and asked.get("stream") is True and told.status in BAD:
        return Told(200, "text/event-stream", b"data: [DONE]\n\n")
    return told


def told_in_an_event(path, asked, told):
    """The same, but an event says what is wrong."""
    if asked and asked.get("stream") is True and told.status in BAD:
        return Told(200, "text/event-stream", b"data: " + told.body + b"\n\ndata: [DONE]\n\n")
    return told


def any_prompt(path, body):
    if path == COMPLETIONS and isinstance(body.get("prompt"), dict):
        return {**body, "prompt": str(body["prompt"])}
    return body


def failing_on_forms(path, asked, told):
    """415 is what the engine says to another content type; this server fails at it."""
    return Told(500, "text/plain", b"Internal Server Error") if told.status == 415 else told


def likely_all(path, asked, told):
    """Alternatives of sampled tokens are scaled, and not normalised again."""
    sampled = asked and asked.get("temperature") and asked.get("logprobs")
    if not sampled or told.status != 200 or is_stream(told):
        return told

    def edit(body):
        block = body["choices"][0]["logprobs"]
        for entry in block.get("content") or ():
            for top in entry["top_logprobs"]:
                top["logprob"] /= 10
            entry["logprob"] /= 10
        for tops in block.get("top_logprobs") or ():
            tops.update({token: value / 10 for token, value in tops.items()})

    return one_shot(told, edit)


FAULTS = (
    fault(
        "entries of held text lost",
        "logprobs_end_where_a_stop_string_cuts",
        "logprobs_stay_with_text_that_was_held_back",
        tell=held_entries_lost,
    ),
    fault(
        "entries run on",
        "logprobs_end_where_a_stop_string_cuts",
        "logprobs_stay_with_text_that_was_held_back",
        tell=entries_run_on,
    ),
    fault(
        "logprobs a chunk late",
        "chunks_keep_their_logprobs_beside_a_stop_string",
        "stream_gives_the_same",
        "logprobs_end_where_a_stop_string_cuts",
        "logprobs_stay_with_text_that_was_held_back",
        "chunks_come_with_their_own_logprobs",
        tell=on_chat_stream(lambda asked, told: a_chunk_late(told)),
    ),
    fault(
        "text a chunk late",
        "chunks_keep_their_logprobs_beside_a_stop_string",
        tell=on_chat_stream(text_a_chunk_late),
    ),
    fault(
        "logprobs of completions a chunk late",
        "completion_chunks_come_with_their_own_logprobs",
        "echo_comes_with_the_prompts_logprobs",
        tell=late_in_completions,
    ),
    fault(
        "places from zero",
        "completion_chunks_come_with_their_own_logprobs",
        "echo_comes_with_the_prompts_logprobs",
        tell=offsets_from_zero,
    ),
    fault(
        "no entries of the prompt",
        "echo_comes_with_the_prompts_logprobs",
        tell=no_entries_of_the_prompt,
    ),
    fault(
        "second choice copied",
        "every_choice_has_its_logprobs",
        "usage_of_a_stream_counts_every_choice",
        "usage_of_completions_counts_every_choice",
        ask=without_n,
        tell=copied,
    ),
    fault(
        "one choice streamed",
        "n_streams_every_choice",
        "completions_bring_every_choice",
        ask=without_n,
        tell=one_streamed,
    ),
    fault(
        "nothing behind the headers",
        "no_messages_in_a_stream",
        "max_tokens_is_a_text_in_a_stream",
        "content_is_a_number_in_a_stream",
        "unknown_response_format_in_a_stream",
        "prompt_is_an_object_in_a_stream",
        tell=ends_after_the_headers,
    ),
    fault("errors in events", tell=told_in_an_event),
    fault(
        "repetition_penalty ignored",
        "repetition_penalty_matters",
        ask=without("repetition_penalty"),
    ),
    fault("500 on a form", "content_type_of_a_form", tell=failing_on_forms),
    fault(
        "any prompt",
        "prompt_is_an_object",
        "prompt_is_an_object_in_a_stream",
        ask=any_prompt,
    ),
    fault("min_tokens ignored", "min_tokens_matters", ask=without("min_tokens")),
    fault("ignore_eos ignored", "ignore_eos_matters", ask=without("ignore_eos")),
    fault("stop_token_ids ignored", "stop_token_ids_matter", ask=without("stop_token_ids")),
    fault(
        "probabilities above one",
        "sampled_values_are_probabilities",
        "sampled_values_of_completions_are_probabilities",
        tell=likely_all,
    ),
)
