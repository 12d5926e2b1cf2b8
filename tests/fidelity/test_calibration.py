"""Counting in the deployment's own tokens: by its tokenizer, else by what usage taught."""

import anyio
import pytest

from fidelity.endpoint.replies import Reply, Tokenized
from fidelity.errors import CapabilityMissing, EndpointError
from fidelity.probes.calibration import TokenCounter, counter_of, fit_line

MESSAGES = [{"role": "user", "content": "x" * 1_000}]


class Client:
    """Four characters a token and 20 tokens around them, with or without a tokenizer."""

    def __init__(self, *, tokenizer, usage=True):
        self.tokenizer, self.usage = tokenizer, usage
        self.chats = 0

    async def tokenize(self, messages, *, tools, thinking):
        if not self.tokenizer:
            raise CapabilityMissing("no tokenizer here")
        return Tokenized(count=1_234 + bool(tools) + 2 * bool(thinking))

    async def chat(self, messages, *, max_tokens):
        assert max_tokens == 1
        self.chats += 1
        tokens = 20 + len(messages[0]["content"]) // 4
        return Reply(request_id="r", path="", prompt_tokens=tokens if self.usage else None)


def test_a_tokenizer_endpoint_counts_exactly_with_tools_and_thinking():
    client = Client(tokenizer=True)

    async def count():
        counter = TokenCounter(client)
        return [
            await counter.count(MESSAGES),
            await counter.count(MESSAGES, tools=[{}]),
            await counter.count(MESSAGES, thinking=True),
        ]

    assert anyio.run(count) == [(1_234, True), (1_235, True), (1_236, True)]
    assert client.chats == 0


def test_without_one_usage_is_learned_from_once():
    client = Client(tokenizer=False)

    async def count():
        counter = TokenCounter(client)
        counts = [await counter.count(MESSAGES) for _ in range(3)]
        return counter, counts

    counter, counts = anyio.run(count)
    assert client.chats == 2
    assert not counter.has_tokenizer
    assert all(abs(found.tokens - 270) <= 2 and not found.exact for found in counts)


def test_concurrent_counts_calibrate_once():
    client = Client(tokenizer=False)

    async def count():
        counter = TokenCounter(client)
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(counter.count, MESSAGES)

    anyio.run(count)
    assert client.chats == 2


def test_without_usage_a_rule_of_thumb_stands_in():
    client = Client(tokenizer=False, usage=False)
    counted = anyio.run(TokenCounter(client).count, MESSAGES)
    assert not counted.exact
    assert 200 < counted.tokens < 300


def test_the_line_goes_through_both_samples():
    base, per_char = fit_line((100, 45), (1_100, 295))
    assert (base, per_char) == (20.0, 0.25)


def test_usage_that_does_not_grow_with_the_text_is_refused():
    with pytest.raises(EndpointError, match="prompts cannot be measured by it"):
        fit_line((100, 45), (1_100, 45))


def test_a_client_has_one_counter_for_its_life():
    client = Client(tokenizer=True)
    assert counter_of(client) is counter_of(client)
    assert counter_of(client) is not counter_of(Client(tokenizer=True))
