"""The twin of the route, against a router and workers that exist in this process only."""

import random
from types import SimpleNamespace

import anyio

from fidelity.endpoint.replies import Reply, Tokenized, TokenLogprob, TopToken
from fidelity.errors import EndpointError
from fidelity.probes.probe import Ask
from fidelity.twins.judging import UNPROVEN, judged
from fidelity.twins.plans import Plan
from fidelity.twins.room import Room
from fidelity.twins.router import ROUTED, routed_arms
from fidelity.twins.scene import Scene


class Worker:
    """Says tokens that follow from all ids that it sees; nothing is random twice."""

    def __init__(self, *, sees=lambda ids: ids, refuses=False):
        self.server = SimpleNamespace(
            dialect=SimpleNamespace(tokenize_path="/tokenize"), tokenizer_distrust=""
        )
        self.sees, self.refuses = sees, refuses

    async def tokenize(self, messages, *, thinking=None):
        text = "".join(message["content"] for message in messages)
        ids = tuple(ord(letter) for letter in text)
        return Tokenized(count=len(ids), tokens=ids)

    async def complete(self, ids, *, max_tokens, **_):
        if self.refuses:
            raise EndpointError("HTTP 400: only a router may ask")
        said, logprobs = [], []
        for _ in range(max_tokens):
            draw = random.Random(repr(tuple(self.sees([*ids, *said]))))  # noqa: S311
            token, logprob = draw.randrange(1000), -draw.random()
            said.append(token)
            logprobs.append(
                TokenLogprob(
                    token=f"<{token}>",
                    logprob=logprob,
                    top=(TopToken(token=f"<{token}>", logprob=logprob),),
                )
            )
        return Reply(
            request_id="r",
            path="/completions",
            token_ids=tuple(said),
            logprobs=tuple(logprobs),
            prompt_tokens=len(ids),
            cached_tokens=0,
        )


def asked(router, *, damaged=False, **workers):
    async def main():
        ask = Ask(router)
        room = Room(page=16, dtype="float32", workers=workers)
        plan = Plan(seed="s", length=400, tokens=6, depth_frac=0.5)
        arms = await routed_arms(ask, room, plan, Scene(damaged=damaged))
        return judged(arms, room), ask.exchanges

    return anyio.run(main)


def test_a_router_that_changes_nothing_agrees_with_its_worker_to_the_bit():
    result, exchanges = asked(Worker(), decode=Worker())
    assert result.ok
    assert result.value == 0.0
    assert set(result.paths) == {"router", "worker"}
    assert [e.label for e in exchanges] == [
        *("router, warm", "router", "decode, warm", "decode", "router, again"),
    ]


def test_a_router_that_drops_a_token_parts_at_the_first():
    result, _ = asked(Worker(sees=lambda ids: ids[1:]), decode=Worker())
    assert result.ok is False
    assert result.cell["parts at"] == 0


def test_a_worker_that_refuses_leaves_the_path_to_the_next_or_unproven():
    result, _ = asked(Worker(), prefill=Worker(refuses=True), decode=Worker())
    assert result.ok
    assert result.cell["worker"] == "decode"
    result, _ = asked(Worker(), prefill=Worker(refuses=True))
    assert result.ok is None
    assert result.error.startswith(UNPROVEN)
    assert "only a router may ask" in result.error


def test_the_control_is_seen_where_the_answer_begins():
    result, _ = asked(Worker(), damaged=True, decode=Worker())
    assert result.ok is False
    assert result.cell["parts at"] == result.cell["must part from"] == 0


def test_a_deployment_without_workers_takes_no_such_path():
    result, _ = asked(Worker())
    assert result.ok is None
    assert "no worker with an address" in result.error
    assert ROUTED.name == "routed"
