"""Logprobs in other people's shapes, from tokens with known values."""

from engine.logprobs_format import CompletionLogprobs, chat_logprobs, prompt_logprobs
from engine.sequence import TokenLogprobs


def token(token_id, logprob, rank, *top):
    return TokenLogprobs(token_id=token_id, logprob=logprob, rank=rank, top=top)


def ids_of(tokenizer, text):
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    return ids


def test_vllms_prompt_logprobs_rank_the_chosen_token_and_its_alternatives(tokenizer):
    a, b, c = ids_of(tokenizer, "xyz")
    third = token(c, -3.0, 3, (a, -1.0), (b, -2.0))
    first = token(a, -1.0, 1, (a, -1.0), (b, -2.0))
    assert prompt_logprobs(tokenizer, [None, third, first], top=2) == [
        None,
        {
            str(c): {"logprob": -3.0, "rank": 3, "decoded_token": "z"},
            str(a): {"logprob": -1.0, "rank": 1, "decoded_token": "x"},
            str(b): {"logprob": -2.0, "rank": 2, "decoded_token": "y"},
        },
        {
            str(a): {"logprob": -1.0, "rank": 1, "decoded_token": "x"},
            str(b): {"logprob": -2.0, "rank": 2, "decoded_token": "y"},
        },
    ]
    assert list(prompt_logprobs(tokenizer, [third], top=0)[0]) == [str(c)]


def test_chats_logprobs_have_as_many_alternatives_as_asked_for(tokenizer):
    a, b, _ = ids_of(tokenizer, "xyz")
    scored = [token(b, -2.0, 2, (a, -1.0), (b, -2.0))]
    entry = chat_logprobs(tokenizer, scored, top=1)[0]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("y", -2.0, [121])
    assert entry["top_logprobs"] == [{"token": "x", "logprob": -1.0, "bytes": [120]}]


def test_completions_logprobs_always_hold_the_chosen_token(tokenizer):
    a, b, c = ids_of(tokenizer, "xyz")
    shape = CompletionLogprobs(tokenizer, top=1)
    first = shape.add([c], [token(c, -3.0, 3, (a, -1.0), (b, -2.0))])
    assert first["top_logprobs"] == [{"x": -1.0, "z": -3.0}]
    assert first["text_offset"] == [0]
    assert shape.add([a, b], [None, None])["text_offset"] == [1, 2]
