"""Twins against servers that exist in this process only: caches that match single tokens."""

import random
from types import SimpleNamespace

import anyio

from fidelity.endpoint.replies import Reply, Tokenized, TokenLogprob, TopToken
from fidelity.probes.probe import Ask
from fidelity.twins.cache import CACHED, cached_arms
from fidelity.twins.judging import judged
from fidelity.twins.plans import plans
from fidelity.twins.prompts import common
from fidelity.twins.room import Room
from fidelity.twins.scene import Scene

HEAD = "<user>"


class TokenCache:
    """A healthy server: every letter a token, and a cache without pages that finds any prefix."""

    def __init__(self):
        self.server = SimpleNamespace(
            dialect=SimpleNamespace(tokenize_path="/tokenize"), tokenizer_distrust=""
        )
        self.held = []

    async def tokenize(self, messages):
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
