"""An answer by itself: asked so that nothing before it can reach it, proven or doubted."""

import anyio
import pytest

from fidelity.errors import CapSpent, TrafficRefused
from fidelity.fuzz.isolation import Way, alone, way_of
from fidelity.fuzz.playing import Can, Played
from fidelity.fuzz.script import Script
from fidelity.fuzz.trying import script_probe
from tests.fidelity.fuzz.answering import FakeAsk, chat, reply


def test_the_best_way_to_isolate_keeps_every_token():
    assert way_of(Can(flush=True, given_text=True)) is Way.FLUSH
    assert way_of(Can(given_text=True, cache_salt="cache_salt")) is Way.GIVEN_TEXT
    assert way_of(Can(cache_salt="cache_salt")) is Way.CACHE_SALT
    assert way_of(Can()) is Way.OTHER_LINE


def isolated(can, *, cached=0, altered=False, head=None):
    ask = FakeAsk()
    message = {"role": "user", "content": "the code is 12345"}
    one = Played(
        label="1. chat c1", chat=chat("q", expect="12345"), messages=(message,), reply=reply()
    )

    async def ask_alone():
        answered = ask.chat

        async def chat_cached(messages, **options):
            told = head if "share" in options["label"] and head is not None else cached
            return msgspec_replace(await answered(messages, **options), cached_tokens=told)

        ask.chat = chat_cached
        return await alone(ask, one, can, seed="s", altered=altered)

    return ask, anyio.run(ask_alone)


def msgspec_replace(made, **fields):
    import dataclasses

    return dataclasses.replace(made, **fields)


def test_isolation_is_proven_by_usage_or_doubted():
    assert isolated(Can(flush=True))[1].trouble == ""
    assert isolated(Can(flush=True))[0].flushes == 1
    assert "came from a cache" in isolated(Can(flush=True), cached=64)[1].trouble
    salted = Can(cache_salt="cache_salt")
    assert "does not tell" in isolated(salted, cached=None)[1].trouble
    assert isolated(msgspec_replace(salted, tells_cached=True), cached=None)[1].trouble == ""
    assert "came from a cache" in isolated(salted, cached=64)[1].trouble
    assert isolated(Can(), cached=None)[1].trouble == ""
    ask, found = isolated(Can(), cached=8)
    assert not found.same_tokens
    assert found.trouble == ""
    assert ask.sent[0][1][0].startswith("Shelf ")
    ask, _ = isolated(Can(cache_salt="cache_salt"))
    assert ask.sent[0][2]["extra"] == {"cache_salt": "alone s"}


def test_given_text_reads_no_cache_also_where_usage_does_not_tell():
    assert isolated(Can(given_text=True), cached=None)[1].trouble == ""


@pytest.mark.parametrize("error", [TrafficRefused, CapSpent])
def test_a_prompt_too_long_for_its_logprobs_gets_another_line(error):
    class Short(FakeAsk):
        async def chat(self, messages, **options):
            if options.get("prompt_logprobs") is not None:
                raise error("too long")
            return await super().chat(messages, **options)

    played = Played(
        label="1. chat c1",
        chat=chat("q"),
        messages=({"role": "user", "content": "q"},),
        reply=reply(),
    )
    ask = Short()

    async def ask_alone():
        return await alone(ask, played, Can(given_text=True), seed="s")

    if error is CapSpent:
        with pytest.raises(CapSpent):
            anyio.run(ask_alone)
        return
    assert not anyio.run(ask_alone).same_tokens
    assert ask.sent[0][1][0].startswith("Shelf ")


def test_what_every_prompt_shares_is_measured_and_no_trouble():
    ask, found = isolated(Can(), cached=120)  # a system prompt of the template, say
    assert found.trouble == ""
    assert len(ask.sent) == 2
    assert "12345" not in ask.sent[1][1][0]
    assert ask.sent[1][1][0].partition(chr(10))[0] != ask.sent[0][1][0].partition(chr(10))[0]
    assert "came from a cache" in isolated(Can(), cached=120, head=64)[1].trouble


def test_the_damage_of_the_control_alters_every_digit_of_the_fact_and_the_question():
    ask, _ = isolated(Can(flush=True), altered=True)
    assert ask.sent[0][1] == ["the code is 45678 Say it once."]


@pytest.mark.parametrize("altered", [False, True])
def test_the_control_is_seen_also_where_only_answers_can_be_compared(altered):
    class Reader(FakeAsk):
        """Answers by the last code that it was told, without logprobs."""

        async def chat(self, messages, *, label="", **options):
            await super().chat(messages, label=label, **options)
            told = " ".join(m["content"] for m in messages).split()
            return reply(next(w for w in reversed(told) if w.strip(".").isdecimal()))

    script = Script(steps=(chat("My code is 12345 . What is it?", expect="12345"),))
    probe = script_probe(script, Can(), key="k", recipe={}, altered=altered)
    found = anyio.run(probe.script, Reader())
    assert found.ok is not altered
