"""One request between scheduler and event loop, with a scheduler that only takes notes."""

import asyncio

import pytest

from engine.generation import Generation, GenerationFailed, TextOptions, TokensWithText
from engine.sequence import Output, SamplingParams, TokenLogprobs


class Notes:
    """A scheduler that records what it is told."""

    def __init__(self):
        self.request, self.said = None, []

    def submit(self, request):
        self.request = request

    def abort(self, request_id):
        self.said.append(("abort", request_id))

    def finish(self, request_id):
        self.said.append(("finish", request_id))


def scored(ids):
    return tuple(TokenLogprobs(token_id=i, logprob=-1.0, rank=1) for i in ids)


def play(tokenizer, outputs, **text):
    """Feed outputs; return the pieces until the end, the generation, the notes, the closings."""
    notes, closed = Notes(), []

    async def run():
        generation = Generation(
            notes,
            tokenizer,
            request_id="r",
            prompt_token_ids=[0, 3],
            sampling=SamplingParams(),
            text=TextOptions(**text),
            on_close=closed.append,
        )
        pieces = []
        try:
            for output in outputs:
                notes.request.on_output(output)
            while generation.finish_reason is None:
                pieces.append(await asyncio.wait_for(generation.next(), 5))
        finally:
            generation.close()
            generation.close()
        return pieces, generation

    pieces, generation = asyncio.run(run())
    assert closed == [generation]
    return pieces, generation, notes


def out(ids=(), **more):
    return Output(request_id="r", new_token_ids=tuple(ids), logprobs=scored(ids), **more)


def test_tokens_after_a_stop_string_do_not_count(tokenizer):
    ids = tokenizer.encode("one END two")
    upto = next(n for n in range(len(ids)) if "END" in tokenizer.decode(ids[:n]))
    pieces, generation, notes = play(tokenizer, [out(ids), out(ids)], stops=("END",))
    assert [piece.text for piece in pieces] == ["one "]
    assert pieces[0].token_ids == tuple(ids[:upto])
    assert len(pieces[0].logprobs) == generation.usage.completion_tokens == upto < len(ids)
    assert generation.finish_reason == "stop"
    assert generation.matched_stop == "END"
    assert notes.said == [("finish", "r")]


def test_a_stop_string_in_the_last_output_asks_for_nothing_more(tokenizer):
    ids = tokenizer.encode("one END")
    _, generation, notes = play(tokenizer, [out(ids, finish_reason="length")], stops=("END",))
    assert generation.finish_reason == "stop"
    assert notes.said == []


def test_the_token_that_stops_counts_and_is_not_shown(tokenizer):
    ids = tokenizer.encode("ab!")
    last = out(ids, finish_reason="stop", stop_token_id=ids[-1])
    pieces, generation, notes = play(tokenizer, [last])
    assert pieces[0].text == tokenizer.decode(ids[:-1])
    assert generation.usage.token_ids == ids
    assert generation.matched_stop == ids[-1]
    assert notes.said == []


def test_the_beginning_of_a_stop_string_is_shown_at_the_end(tokenizer):
    ids = tokenizer.encode("one EN")
    pieces, _, _ = play(tokenizer, [out(ids), out(finish_reason="length")], stops=("END",))
    assert [piece.text for piece in pieces] == ["one ", "EN"]


def test_a_failure_of_the_engine_is_raised_with_its_reason_and_not_aborted(tokenizer):
    with pytest.raises(GenerationFailed, match="pool burnt"):
        play(tokenizer, [out([5]), out(finish_reason="error", error="pool burnt")])


def test_leaving_early_aborts_once(tokenizer):
    notes, closed = Notes(), []

    async def run():
        generation = Generation(
            notes,
            tokenizer,
            request_id="r",
            prompt_token_ids=[0],
            sampling=SamplingParams(),
            text=TextOptions(),
            on_close=closed.append,
        )
        generation.close()
        generation.close()
        return generation

    generation = asyncio.run(run())
    assert notes.said == [("abort", "r")]
    assert closed == [generation]
    notes.request.on_output(out([5]))  # the loop is closed: nobody to tell, and no error
    assert generation.finish_reason == "abort"


def test_counts_of_the_scheduler_reach_the_usage(tokenizer):
    last = out([5], finish_reason="length", prompt_tokens=2, cached_tokens=1)
    _, generation, _ = play(tokenizer, [last])
    assert (generation.usage.prompt_tokens, generation.usage.cached_tokens) == (2, 1)


@pytest.mark.parametrize(
    ("steps", "given"),
    [
        ([("a", 1), ("b", 1)], [("a", 1), ("b", 1)]),
        # the end of the second token may begin a stop string, and is released with the third
        ([("a", 1), (" ", 4), ("fox.", 1)], [("a", 1), ("", 0), (" fox.", 2)]),
        # what was held is released while the next token is held in its turn
        ([("", 1), ("x", 1)], [("", 0), ("x", 1)]),
        # a character of two tokens comes with both
        ([("", 0), ("é", 1)], [("", 1), ("é", 1)]),
    ],
    ids=("as they come", "half a token", "held in turn", "half a character"),
)
def test_tokens_and_their_text_wait_for_each_other(steps, given):
    together, token = TokensWithText(), scored([1])
    found = []
    for released, length in steps:
        text, ids, logprobs = together.take(released, [length], [1], token, last=False)
        assert len(ids) == len(logprobs)
        found.append((text, len(ids)))
    assert found == given


def test_the_last_take_leaves_nothing():
    together = TokensWithText()
    assert together.take("", [3], [1], scored([1]), last=False) == ("", (), ())
    text, ids, _ = together.take("f", [2], [2], scored([2]), last=True)
    assert (text, ids) == ("f", (1, 2))
