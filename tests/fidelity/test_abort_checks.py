"""Aborts: when they come, in which ways, and what stays behind in the evidence."""

import anyio
import pytest

from fidelity.checks import abort, gauges
from fidelity.checks.abort_plans import (
    BY_NAME,
    FIRST_GUESS_S,
    POINTS,
    After,
    How,
    Pace,
    plans,
    ways,
)
from fidelity.checks.dealing import dealt
from fidelity.checks.together import together
from fidelity.endpoint.replies import Reply
from fidelity.errors import EndpointError, TrafficRefused
from fidelity.probes.probe import Ask
from fidelity.words import Traffic


def reply(ttft_s, tokens, cached=0):
    return Reply(request_id="r", path="", ttft_s=ttft_s, prompt_tokens=tokens, cached_tokens=cached)


def test_the_pace_is_that_of_the_fastest_cold_prompt():
    pace = Pace()
    assert pace.first_token_s(700) == pytest.approx(FIRST_GUESS_S)
    pace.learn(reply(2.0, 1_000))
    pace.learn(reply(0.5, 1_000))
    pace.learn(reply(0.001, 1_000, cached=960))
    pace.learn(reply(None, 1_000))
    assert pace.first_token_s(2_000) == pytest.approx(1.0)


def test_plans_deal_out_every_point_way_and_follow_up():
    found = plans(seed=0, count=18, facts=(10, 20), hows=ways(has_call=True))
    assert {plan.point for plan in found} == {point.name for point in POINTS}
    assert {plan.how for plan in found} == {How.CLOSE, How.CALL}
    assert {plan.after for plan in found} == set(After)
    assert len({plan.seed for plan in found}) == 18


def test_a_class_of_plans_has_one_point_and_other_seeds():
    found = plans(seed=0, count=22, facts=(10,), hows=[How.CLOSE], point="late")
    assert {plan.point for plan in found} == {"late"}
    assert not {p.seed for p in found} & {
        p.seed for p in plans(seed=0, count=18, facts=(10,), hows=[How.CLOSE])
    }


def test_without_an_abort_call_connections_are_closed():
    assert ways(has_call=False) == [How.CLOSE]


class Slow:
    """Takes 20 s to answer, knows a request only after its third abort call."""

    def __init__(self):
        self.options = []
        self.aborts = []
        self.ended = anyio.Event()

    async def chat(self, messages, **options):
        del messages
        self.options.append(options)
        with anyio.move_on_after(20):
            await self.ended.wait()
        return Reply(request_id=options["request_id"], path="", aborted=True)

    async def abort(self, request_id):
        self.aborts.append(request_id)
        if len(self.aborts) < 3:
            raise TrafficRefused("not one of ours yet")
        self.ended.set()


def aborted(client, point, how):
    ask = Ask(client)

    async def run():
        with anyio.fail_after(5):
            return await abort.abort_request(ask, [], BY_NAME[point], how, wait_s=0.05)

    return anyio.run(run), ask


def test_a_timed_close_leaves_the_request_and_keeps_it_as_evidence():
    client = Slow()
    partial, ask = aborted(client, "prefill .6", How.CLOSE)
    assert partial is None
    assert [e.aborted for e in ask.exchanges] == [True]
    assert ask.exchanges[0].request_id == client.options[0]["request_id"]
    assert client.aborts == []
    assert client.options[0]["traffic"] is Traffic.DISRUPTIVE


def test_a_timed_call_waits_until_the_request_is_known():
    client = Slow()
    partial, ask = aborted(client, "prefill .2", How.CALL)
    assert partial.aborted
    assert client.aborts == [client.options[0]["request_id"]] * 3
    assert len(client.aborts[0]) >= 32
    assert len(ask.exchanges) == 1


def test_a_counted_abort_is_left_to_the_stream():
    class Streams(Slow):
        async def chat(self, messages, **options):
            self.options.append(options)
            return Reply(request_id="r", path="", aborted=True)

    client = Streams()
    aborted(client, "few tokens", How.CALL)
    assert client.options[0]["abort_after_tokens"] == 4
    assert client.options[0]["abort_by_call"] is True


def test_together_returns_in_order_and_raises_the_failure_itself():
    async def after(delay_s, value):
        await anyio.sleep(delay_s)
        if isinstance(value, Exception):
            raise value
        return value

    async def both(*jobs):
        return await together([lambda job=job: after(*job) for job in jobs])

    assert anyio.run(both, (0.02, "a"), (0.0, "b")) == ["a", "b"]
    with pytest.raises(EndpointError, match="gone"):
        anyio.run(both, (5.0, "a"), (0.0, EndpointError("gone")))


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [(0.0, 0.0, True), (0.0, 16.0, False), (1e6, 1e6 + 0.5, True), (3.0, None, False)],
)
def test_a_gauge_is_where_it_was(before, after, holds):
    assert gauges.same(before, after) is holds


def test_a_short_deal_has_no_item_twice_before_all_came_once():
    import random

    draw = random.Random(0)  # noqa: S311
    for count in range(1, 30):
        found = dealt("abcd", count, draw)
        often = [found.count(item) for item in "abcd"]
        assert max(often) - min(often) <= 1
        assert len(found) == count
