"""Twins against servers that exist in this process only: their caches, habits and limits."""

import random
from dataclasses import replace
from types import SimpleNamespace

import anyio
import pytest

from fidelity.endpoint.replies import Reply, Tokenized, TokenLogprob, TopToken
from fidelity.errors import EndpointError
from fidelity.probes.probe import Ask
from fidelity.records import Trial
from fidelity.twins import life
from fidelity.twins.cache import CACHED, cached_arms
from fidelity.twins.judging import judged
from fidelity.twins.pilot import piloted
from fidelity.twins.plans import (
    Plan,
    Sweep,
    classes_of,
    fresh_of_class,
    long_lengths,
    long_plans,
    plans,
)
from fidelity.twins.prompts import common
from fidelity.twins.room import Room
from fidelity.twins.scene import Scene
from fidelity.twins.strangers import strangers
from fidelity.words import Budget

HEAD = "<user>"


class TokenCache:
    """A healthy server: every letter a token, and a cache without pages that finds any prefix."""

    def __init__(self):
        self.server = SimpleNamespace(
            dialect=SimpleNamespace(tokenize_path="/tokenize"), tokenizer_distrust=""
        )
        self.held = []

    async def tokenize(self, messages, *, thinking=None):
        text = HEAD + "".join(message["content"] for message in messages)
        ids = tuple(ord(letter) for letter in text)
        return Tokenized(count=len(ids), tokens=ids)

    async def complete(self, ids, *, max_tokens, **_):
        found = max((common(ids, held) for held in self.held), default=0)
        said, logprobs = [], []
        for _ in range(max_tokens):
            draw = random.Random(repr((*ids, *said)))  # noqa: S311 - a model, no secret
            said.append(draw.randrange(1000))
            told = {"token": f"<{said[-1]}>", "logprob": -draw.random()}
            logprobs.append(TokenLogprob(**told, top=(TopToken(**told),)))
        self.held.append((*ids, *said))
        return Reply(
            request_id="r",
            path="/completions",
            token_ids=tuple(said),
            logprobs=tuple(logprobs),
            prompt_tokens=len(ids),
            cached_tokens=min(found, len(ids) - 1),
        )


def test_a_cache_of_single_tokens_finds_a_few_digits_and_the_path_is_proven_all_the_same():
    async def main():
        ask, room = Ask(TokenCache()), Room(page=1, dtype="float32", limit_tokens=4096)
        chosen = plans(CACHED.sweep.fitted(room), room, seed=1, count=40)
        return [judged(await cached_arms(ask, room, plan, Scene()), room) for plan in chosen]

    told = anyio.run(main)
    assert [result.error for result in told if result.error] == []
    assert all(result.ok for result in told)


class Thinker(TokenCache):
    """Begins every answer with the same words; gives few alternatives, and may leave usage out."""

    def __init__(self, *, thinks=0, most_tops=20, tells_none=False):
        super().__init__()
        self.thinks, self.most_tops, self.tells_none = thinks, most_tops, tells_none
        self.asked = []

    async def chat(self, messages, *, top_logprobs=0, allow_status=(), **_):
        self.asked.append(top_logprobs)
        return Reply(request_id="r", path="", status=400 if top_logprobs > self.most_tops else 200)

    async def complete(self, ids, *, max_tokens, **options):
        self.asked.append(options.get("top_logprobs", 0))
        reply = await super().complete(ids, max_tokens=max_tokens)
        same = TokenLogprob(token="<0>", logprob=-0.1, top=(TopToken(token="<0>", logprob=-0.1),))
        begin = min(self.thinks, max_tokens)
        cached = None if self.tells_none and reply.cached_tokens < 20 else reply.cached_tokens
        return replace(
            reply,
            token_ids=(*[0] * begin, *reply.token_ids[begin:]),
            logprobs=(*[same] * begin, *reply.logprobs[begin:]),
            cached_tokens=cached,
        )


class Reasoner(TokenCache):
    """Reasons as long as it is asked to answer, unless it is told not to reason."""

    async def tokenize(self, messages, *, thinking=None):
        ids = (await super().tokenize(messages)).tokens
        return Tokenized(count=len(ids) + 1, tokens=(*ids, 7 if thinking is False else 8))

    async def complete(self, ids, *, max_tokens, **options):
        reply = await super().complete(ids, max_tokens=max_tokens)
        if ids[-1] == 7:
            return reply
        same = TokenLogprob(token="<0>", logprob=-0.1, top=(TopToken(token="<0>", logprob=-0.1),))
        return replace(reply, token_ids=(0,) * max_tokens, logprobs=(same,) * max_tokens)


def test_a_model_that_reasons_at_length_is_told_not_to():
    assert of(cached_arms, Reasoner(), damaged=True).ok  # blind: all that it says is reasoning
    assert of(cached_arms, Reasoner(), replace(ROOM, thinking=False), damaged=True).ok is False


class Asking:
    """Runs probes against one server, as a measure does."""

    planning = False

    def __init__(self, client):
        self.deployment = SimpleNamespace(client=client)

    def ask(self, probes, **_):
        async def main():
            return [await probe.script(Ask(self.deployment.client)) for probe in probes]

        return anyio.run(main)


ROOM = Room(page=1, dtype="float32", limit_tokens=4096)
PLAN = Plan(seed="s", length=400, tokens=6)


def of(script, client, room=ROOM, *, damaged=False, plan=PLAN):
    async def main():
        return judged(await script(Ask(client), room, plan, Scene(damaged=damaged)), room)

    return anyio.run(main)


def test_answers_are_as_much_longer_as_a_model_says_the_same_first():
    client = Thinker(thinks=20)
    room = piloted(Asking(client), ROOM)
    assert room.answers_at == 20
    blind = of(cached_arms, client, damaged=True)
    assert blind.ok  # six tokens, none of which depends on the prompt
    seen = of(cached_arms, client, damaged=True, plan=replace(PLAN, tokens=6 + room.answers_at))
    assert seen.ok is False
    assert seen.cell["parts at"] == 20


def test_a_model_that_answers_at_once_is_asked_as_many_tokens_as_before():
    assert piloted(Asking(Thinker()), ROOM) == ROOM


def test_no_more_alternatives_are_asked_than_are_given():
    client = Thinker(most_tops=3)
    room = piloted(Asking(client), ROOM)
    assert room.tops == 2
    client.asked.clear()
    assert of(cached_arms, client, room).ok
    assert set(client.asked) == {2}


def test_usage_that_leaves_out_no_cached_tokens_proves_a_cold_request():
    assert of(cached_arms, Thinker(tells_none=True)).ok
    untold = of(cached_arms, Thinker(tells_none=True), replace(ROOM, tells_cached=False))
    assert untold.ok is None


def test_early_and_late_read_the_cache_alike_where_it_cannot_be_passed_by(monkeypatch):
    async def nothing(*_, **__):
        pass

    monkeypatch.setattr(life, "other_requests", nothing)
    result = of(life.aged_arms, TokenCache(), replace(ROOM, can_bypass=False))
    assert (result.ok, result.error) == (True, "")


def test_a_stranger_that_fails_is_trouble_of_one_prompt():
    class Refusing(TokenCache):
        async def chat(self, *_, **__):
            raise EndpointError("HTTP 503: no room")

    async def main():
        async with strangers(Ask(Refusing()), Room(), seed="s", count=2, tokens=3):
            await anyio.sleep(1)

    with pytest.raises(EndpointError, match="no room"):
        anyio.run(main)


class TestLong:
    SWEEP = Sweep(low=81, high=330, answers=(8, 16), kinds=("a=x", "a=y"))

    @pytest.mark.parametrize(
        ("budget", "limit", "lengths"),
        [
            (Budget.QUICK, None, (1024, 2048)),
            (Budget.QUICK, 2048, (1024,)),
            (Budget.QUICK, 1024, ()),
            (Budget.STANDARD, None, (2048, 8192)),
            (Budget.DEEP, 40_000, (2048, 8192, 32_768)),
        ],
    )
    def test_lengths_follow_the_budget_within_the_servers_limit(self, budget, limit, lengths):
        assert long_lengths(self.SWEEP, replace(ROOM, limit_tokens=limit), budget) == lengths

    def test_a_twin_of_one_chunk_stays_within_it_where_it_must(self):
        room = replace(ROOM, chunk=2048, limit_tokens=None)
        assert long_lengths(CACHED.sweep, room, Budget.QUICK) == (1024,)
        assert long_lengths(self.SWEEP, room, Budget.QUICK) == (1024, 2048)

    def test_a_miss_there_is_asked_again_at_that_length(self):
        sweep = replace(self.SWEEP, long=(1024, 2048))
        found = long_plans(sweep, seed=1)
        assert [plan.long for plan in found] == [1024, 2048]
        for plan in found:
            trial = Trial(id="t", claim="c", suite="s", probe="p", cell=plan.cell)
            names = classes_of(sweep, trial)
            assert f"long={plan.long}" in names
            assert not any(name.startswith("length_band") for name in names)
            fresh = fresh_of_class(sweep, f"long={plan.long}", seed=1, count=22)
            assert all(plan.long - 128 < again.length <= plan.long for again in fresh)
            assert len({again.length % 16 for again in fresh}) > 8
            assert not {again.key for again in fresh} & {plan.key}
