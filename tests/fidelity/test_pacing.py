"""How refusals are waited out, on a clock of our own."""

from datetime import UTC, datetime

import anyio
import pytest

from fidelity.endpoint.pacing import Pacer, Waiting, read_retry_after
from fidelity.errors import Overloaded
from fidelity.words import Traffic

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Time:
    def __init__(self):
        self.now = 100.0
        self.slept = []

    def clock(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        await anyio.lowlevel.checkpoint()


def _pacer(time, **limits):
    known = {"concurrency": 8, "load_concurrency": 32, "max_wait_s": 60.0} | limits
    return Pacer(**known, sleep=time.sleep, clock=time.clock)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("-3", None),
        ("nan", None),
        ("1e300", None),
        ("soon", None),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 12:00:30", 30.0),
        ("Sun, 99 Mar 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms(value, seconds):
    assert read_retry_after(value, NOW) == seconds


async def test_without_retry_after_waits_double_up_to_the_longest():
    time = Time()
    pacer, waiting = _pacer(time, max_wait_s=1e6), Waiting()
    for _ in range(9):
        await pacer.back_off(waiting, asked_s=None, seen="x")
    expected = [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert all(0.75 * e <= s <= 1.25 * e for s, e in zip(time.slept, expected, strict=True))
    assert len(set(time.slept)) == 9


async def test_retry_after_is_kept_to_the_second():
    time = Time()
    pacer, waiting = _pacer(time), Waiting()
    await pacer.back_off(waiting, asked_s=7.0, seen="x")
    assert (time.slept, waiting.waited_s, waiting.refusals) == ([7.0], 7.0, 1)


async def test_the_cap_on_waiting_is_never_passed():
    time = Time()
    pacer, waiting = _pacer(time, max_wait_s=10.0), Waiting()
    for _ in range(3):
        await pacer.back_off(waiting, asked_s=3.0, seen="server is full")
    with pytest.raises(Overloaded, match="server is full 4 times within 9 s"):
        await pacer.back_off(waiting, asked_s=3.0, seen="server is full")
    assert sum(time.slept) == 9.0


async def test_after_one_wait_in_vain_the_others_fail_at_once_until_one_succeeds():
    time = Time()
    pacer = _pacer(time, max_wait_s=10.0)
    with pytest.raises(Overloaded):
        await pacer.back_off(Waiting(), asked_s=99.0, seen="x")
    with pytest.raises(Overloaded):
        await pacer.back_off(Waiting(), asked_s=1.0, seen="x")
    assert time.slept == []
    pacer.succeeded()
    await pacer.back_off(Waiting(), asked_s=1.0, seen="x")
    assert time.slept == [1.0]


async def test_a_refusal_holds_every_request_of_the_run():
    time = Time()
    pacer = _pacer(time)
    pacer._not_before = time.now + 5.0
    for traffic in (Traffic.PASSIVE, Traffic.LOAD):
        async with pacer.slot(traffic):
            assert time.now >= 105.0
    assert time.slept == [5.0]


async def test_concurrency_halves_with_each_refusal_and_grows_by_one_with_each_success():
    time = Time()
    pacer, waiting = _pacer(time, max_wait_s=1e6), Waiting()
    seen = []
    for _ in range(5):
        await pacer.back_off(waiting, asked_s=0.0, seen="x")
        seen.append(pacer.allowed_in_flight)
    assert seen == [4, 2, 1, 1, 1]
    for _ in range(20):
        pacer.succeeded()
    assert pacer.allowed_in_flight == 8


async def test_what_is_refused_together_is_one_round_and_a_success_starts_anew():
    time = Time()
    pacer = _pacer(time, max_wait_s=1e6)

    async def refused_together(count):
        before = len(time.slept)
        pacer._not_before = max(pacer._not_before, time.now)
        held = time.now
        for _ in range(count):
            time.now = held  # all at one moment
            await pacer.back_off(Waiting(), asked_s=None, seen="x")
        time.now = pacer._not_before
        return max(time.slept[before:])

    assert await refused_together(4) <= 0.5 * 1.25
    assert 0.75 <= await refused_together(4) <= 1.25
    assert await refused_together(4) >= 1.5
    pacer.succeeded()
    assert await refused_together(4) <= 0.5 * 1.25
