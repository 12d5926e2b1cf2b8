"""How the client aborts, what it refuses to send, and how it makes room for others."""

import anyio
import pytest
from clients import client_of
from hostile_server import HostileServer, delta, healthy
from tiny_http import TinyServer

from fidelity.errors import Overloaded, TrafficRefused
from fidelity.words import Traffic

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "Hello"}]


# ---- aborts


async def test_an_abort_closes_the_socket_after_that_many_deltas():
    with HostileServer("endless_slow") as server:
        async with client_of(server.base_url) as client:
            reply = await client.chat(HELLO, max_tokens=100, abort_after_tokens=3)
        assert server.wait_until(lambda: server.closed_early == ["/v1/chat/completions"])
    assert (reply.aborted, reply.chunks, reply.text) == (True, 3, "na na na ")
    assert reply.finish_reason == ""


async def test_an_abort_after_zero_deltas_closes_as_soon_as_the_headers_are_there():
    with HostileServer("silent_stream") as server:
        async with client_of(server.base_url, idle_s=30) as client:
            reply = await client.chat(HELLO, max_tokens=100, abort_after_tokens=0)
        assert server.wait_until(lambda: len(server.closed_early) == 1)
    assert (reply.aborted, reply.text, reply.e2e_s < 5) == (True, "", True)


@pytest.mark.parametrize("name", ["silent_headers", "silent_stream", "endless_slow"])
async def test_an_abort_after_a_time_closes_the_socket_whatever_has_come(name):
    with HostileServer(name) as server:
        async with client_of(server.base_url, idle_s=30) as client:
            reply = await client.chat(HELLO, max_tokens=100, abort_after_s=0.3)
        assert server.wait_until(lambda: len(server.closed_early) == 1)
    assert reply.aborted
    assert reply.chunks == reply.text.count("na ")
    assert (reply.chunks > 0) == (name == "endless_slow")
    assert 0.25 < reply.e2e_s < 5


class _Abortable(TinyServer):
    """Streams until somebody calls abort with the full id of the stream."""

    def __init__(self):
        super().__init__()
        self.stopped = anyio.Event()

    async def handle(self, request, connection):
        if request.path == "/abort_request":
            self.aborted = request.json["rid"]
            self.stopped.set()
            await connection.respond(200, {"ok": True})
            return
        await connection.start()
        while not self.stopped.is_set():
            await connection.event(delta("na "))
            await anyio.sleep(0.02)
        await connection.event(delta(finish="abort"))
        await connection.event("[DONE]")
        await connection.end()


async def test_an_abort_by_call_names_the_full_random_id_and_reads_the_end():
    with _Abortable() as server:
        async with client_of(server.base_url, dialect="sglang") as client:
            reply = await client.chat(
                HELLO,
                max_tokens=100,
                abort_after_tokens=2,
                abort_by_call=True,
                traffic=Traffic.DISRUPTIVE,
            )
        assert server.requests[0].json["rid"] == reply.request_id == server.aborted
        assert server.closed_early == []
    assert (reply.aborted, reply.finish_reason) == (True, "abort")


@pytest.mark.parametrize("request_id", ["", "fid-", "fid-0123456789abcdef0123456789abcdef"])
async def test_an_abort_of_an_id_that_is_not_ours_is_never_sent(request_id):
    with HostileServer() as server:
        async with client_of(server.base_url, dialect="sglang") as client:
            with pytest.raises(TrafficRefused, match="only full ids of this run's own requests"):
                await client.abort(request_id)
        assert server.requests == []


# ---- what is refused


async def test_a_class_that_is_not_allowed_is_never_sent():
    with HostileServer() as server:
        async with client_of(server.base_url, dialect="sglang", allow=()) as client:
            for traffic in (Traffic.LOAD, Traffic.DISRUPTIVE):
                with pytest.raises(TrafficRefused, match=f"pass --fidelity-allow {traffic}"):
                    await client.chat(HELLO, max_tokens=1, traffic=traffic)
            with pytest.raises(TrafficRefused):
                await client.flush_cache()
            with pytest.raises(TrafficRefused):
                await client.abort("fid-" + "0" * 32)
            with pytest.raises(TrafficRefused):
                await client.chat(HELLO, max_tokens=9, abort_after_tokens=1, abort_by_call=True)
            for path in (
                "//flush_cache",
                "//abort_request",
                "//flush_cache?timeout=1",
                "//x/../flush_cache/",
            ):
                with pytest.raises(
                    TrafficRefused, match="by flush_cache\\(\\) and abort\\(\\) only"
                ):
                    await client.raw("POST", path, {"rid": ""})
        assert server.requests == []


@pytest.mark.parametrize(
    ("dialect", "allow", "most"),
    [
        ("vllm", (), 2_304),  # no field for a span: every position is scored
        ("sglang", (), 2_304),
        ("engine", (), 16_384),
        ("vllm", (Traffic.LOAD,), 16_384),
    ],
)
async def test_a_given_text_is_bounded_by_what_the_server_scores_of_it(dialect, allow, most):
    echo = {"echo": True, "top_logprobs": 1, "stream": False}
    way = echo if dialect == "sglang" else {"prompt_logprobs": 1}
    with HostileServer() as server:
        async with client_of(server.base_url, dialect=dialect, allow=allow) as client:
            assert client.given_text_limit == most
            await client.complete([5] * most, max_tokens=1, **way)
            for options in (way, echo):
                with pytest.raises(TrafficRefused, match=f"pass the bound of {most}"):
                    await client.complete([5] * (most + 1), max_tokens=1, **options)
            await client.complete([5] * (most + 1), max_tokens=1, echo=True)
        assert len(server.requests) == 2


async def test_the_cap_on_requests_is_hard():
    with HostileServer() as server:
        async with client_of(server.base_url, max_requests=3) as client:
            for _ in range(3):
                await client.chat(HELLO, max_tokens=1)
            with pytest.raises(TrafficRefused, match="cap of 3 requests is spent"):
                await client.chat(HELLO, max_tokens=1)
        assert len(server.requests) == 3


async def test_the_cap_on_tokens_is_never_passed_even_by_many_at_once():
    cap = 1_000
    with HostileServer(pace_s=0.01) as server:
        async with client_of(server.base_url, max_tokens=cap, concurrency=16) as client:
            refusals = []

            async def ask():
                try:
                    await client.chat(HELLO, max_tokens=7)
                except TrafficRefused as error:
                    refusals.append(str(error))

            async with anyio.create_task_group() as group:
                for _ in range(200):
                    group.start_soon(ask)
            spent = client.caps.spent
        answered = len(server.requests)
    assert answered + len(refusals) == 200
    assert all("passes the cap of 1000" in said for said in refusals)
    assert answered * 12 == spent.tokens  # 5 prompt tokens and 7 of the answer
    assert 0.5 * cap < spent.tokens <= cap


async def test_requests_in_flight_stay_below_the_cap_of_their_class():
    most = {}
    for traffic, cap in ((Traffic.PASSIVE, 3), (Traffic.LOAD, 6)):
        in_flight = 0

        async def handle(request, connection, traffic=traffic):
            nonlocal in_flight
            in_flight += 1
            most[traffic] = max(most.get(traffic, 0), in_flight)
            await anyio.sleep(0.02)
            in_flight -= 1
            await connection.respond(200, {"choices": [{"message": {"content": "x"}}]})

        with TinyServer(handle) as server:
            async with (
                client_of(server.base_url, concurrency=3, load_concurrency=6) as client,
                anyio.create_task_group() as group,
            ):
                for _ in range(20):
                    group.start_soon(lambda: client.chat(HELLO, stream=False, traffic=traffic))  # noqa: B023
        assert most[traffic] == cap


# ---- others on the server


async def test_passive_requests_wait_while_others_queue():
    waiting = [9, 9, 9]
    with HostileServer(waiting=lambda: waiting.pop() if waiting else 0) as server:
        async with client_of(server.base_url, dialect="vllm", shared=True) as client:
            client.server.has_metrics = True
            await client.chat(HELLO, max_tokens=1)
            assert client.queue_watch.backed_off == 3
            assert client.pacer.allowed_in_flight < 8
        order = [request.path for request in server.requests]
    assert order == ["/metrics"] * 4 + ["/v1/chat/completions"]


async def test_a_queue_of_others_that_stays_ends_as_overloaded():
    with HostileServer(waiting=lambda: 40) as server:
        async with client_of(
            server.base_url, dialect="vllm", shared=True, max_wait_s=1.0
        ) as client:
            client.server.has_metrics = True
            with pytest.raises(Overloaded, match="queue holds 40 requests of others"):
                await client.chat(HELLO, max_tokens=1)
        assert server.generations == 0


async def test_a_restart_opens_a_new_epoch_and_a_second_replica_does_not():
    info = {"version": "1", "start_time": 1.0}

    async def handle(request, connection):
        if request.path == "/server_info":
            await connection.respond(200, dict(info))
        else:
            await healthy(server, request, connection)

    server = HostileServer()
    server.handle = handle
    with server:
        async with client_of(server.base_url, dialect="engine") as client:
            client.server.has_server_info = True
            for start in (1.0, 2.0):
                info["start_time"] = start
                client.epochs.learn(await client.identity())
            client.epochs.settle()
            epochs = []
            for start in (2.0, 1.0, 3.0, 3.0):
                info["start_time"] = start
                client._identity_due = 0.0
                epochs.append((await client.chat(HELLO, max_tokens=1)).epoch)
    assert epochs == [0, 0, 1, 1]
    assert "start_time=3.0" in client.epochs.reasons[0]
