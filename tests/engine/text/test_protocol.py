"""Requests to the engine's own parameters: every field arrives, and under its own name."""

import msgspec
import pytest

from engine.bodies import parse_body
from engine.errors import InvalidRequest
from engine.http_errors import ApiError
from engine.protocol import ChatBody, CompletionBody
from engine.sequence import SamplingParams
from engine.unimplemented import _NEUTRAL, refuse_unimplemented

MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**more):
    return parse_body(msgspec.json.encode({"model": "m", "messages": MESSAGES} | more), ChatBody)


def test_every_sampling_parameter_reaches_the_engine():
    body = chat(
        temperature=0.25,
        top_p=0.5,
        top_k=7,
        min_p=0.125,
        frequency_penalty=0.75,
        presence_penalty=-0.75,
        seed=-3,
        stop_token_ids=[5, 6],
        ignore_eos=True,
        prompt_logprobs=4,
        prompt_logprobs_start=9,
        max_completion_tokens=11,
        logprobs=True,
        top_logprobs=3,
    )
    limits = {"max_tokens": body.token_limit(), "logprobs": body.alternatives()}
    assert body.sampling(**limits) == SamplingParams(
        max_tokens=11,
        temperature=0.25,
        top_p=0.5,
        top_k=7,
        min_p=0.125,
        frequency_penalty=0.75,
        presence_penalty=-0.75,
        seed=-3,
        stop_token_ids=(5, 6),
        ignore_eos=True,
        logprobs=3,
        prompt_logprobs=4,
        prompt_logprobs_start=9,
    )


def test_what_is_not_said_is_openais_default():
    sampling = chat().sampling(max_tokens=None, logprobs=None)
    assert sampling == SamplingParams(temperature=1.0, top_p=1.0)
    assert chat(temperature=0).sampling(max_tokens=None, logprobs=None).greedy
    assert chat(temperature=None).sampling(max_tokens=None, logprobs=None).temperature == 1.0
    assert chat(logprobs=True).alternatives() == 0
    assert chat().alternatives() is None
    assert chat(max_tokens=3, max_completion_tokens=3).token_limit() == 3


def test_stop_is_a_text_or_a_list():
    assert chat(stop="a").stops() == ("a",)
    assert chat(stop=["a", "b"]).stops() == ("a", "b")
    assert chat(stop=[]).stops() == chat().stops() == ()


@pytest.mark.parametrize("name", sorted(_NEUTRAL))
def test_a_parameter_without_implementation_is_accepted_at_its_neutral_values_only(name):
    if name == "include_obfuscation":
        kind, make = ChatBody, lambda value: {"stream": True, "stream_options": {name: value}}
    else:
        kind = ChatBody if name in ChatBody.__struct_fields__ else CompletionBody
        make = lambda value: {name: value}  # noqa: E731
    base = {"model": "m"} | ({"messages": MESSAGES} if kind is ChatBody else {"prompt": "x"})
    for accepted in (None, *_NEUTRAL[name]):
        body = parse_body(msgspec.json.encode(base | make(accepted)), kind)
        refuse_unimplemented(body)
    for refused in ("something", 17, [1], {"a": 1}):
        body = parse_body(msgspec.json.encode(base | make(refused)), kind)
        with pytest.raises(InvalidRequest, match=name):
            refuse_unimplemented(body)


def test_every_field_that_no_code_reads_is_listed_as_unimplemented_or_as_a_mere_remark():
    remarks = {"user", "metadata", "safety_identifier", "prompt_cache_key", "add_special_tokens"}
    untyped = {
        field.name
        for kind in (ChatBody, CompletionBody)
        for field in msgspec.structs.fields(kind)
        if str(field.type) == "typing.Any"
    }
    assert untyped - set(_NEUTRAL) == set()
    assert not remarks & set(_NEUTRAL)


def test_a_refusal_shows_no_more_than_the_beginning_of_a_huge_value():
    with pytest.raises(InvalidRequest) as caught:
        refuse_unimplemented(chat(audio="x" * 100_000))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["\\u0000", "a\\u0000b", "\\ud83d\\ude00\\u0000"])
def test_a_nul_is_found_however_deep_it_lies(text):
    for holder in ('{"a": "%s"}', '{"%s": 1}', '[["%s"]]'):
        raw = '{"model": "m", "messages": [{"role": "user", "content": "x"}], "audio": '
        raw += holder % text + "}"
        with pytest.raises(ApiError, match="NUL"):
            parse_body(raw.encode(), ChatBody)
    escaped = '{"model": "m", "messages": [{"role": "user", "content": "\\\\u0000"}]}'
    assert parse_body(escaped.encode(), ChatBody).messages[0].content == "\\u0000"
