"""A 500 is the request's own only when it comes again while plain requests are answered."""

import json

import pytest
from tiny_http import TinyServer

from fidelity.checks.conformance import Check, measured
from fidelity.checks.conformance_wire import Line
from fidelity.config.profile import RequestProfile
from fidelity.endpoint.caps import Caps
from fidelity.endpoint.client import Client
from fidelity.endpoint.pacing import Pacer
from fidelity.endpoint.server_calls import Server
from fidelity.endpoint.transport import Transport
from fidelity.errors import EndpointError
from fidelity.probes.probe import Ask

GOOD = {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}


async def collect(line):
    return [await line.chat([{"role": "user", "content": "x"}], label="bad", extra={"bad": 1})]


CHECK = Check(name="c", title="t", collect=collect, judge=lambda wires: [])


async def outcome_at(statuses_of_bad, statuses_of_plain=()):
    """Measure against a server that answers bad and plain requests with these statuses in turn."""
    bad, plain = list(statuses_of_bad), list(statuses_of_plain)

    async def handle(request, connection):
        statuses = bad if "bad" in json.loads(request.body) else plain
        status = statuses.pop(0) if statuses else 200
        await (connection.respond(status, GOOD) if status else connection.drop())

    with TinyServer(handle) as server:
        client = Client(
            Transport(server.base_url, profile=RequestProfile()),
            Server(model="m"),
            caps=Caps(max_requests=50, max_tokens=None, allow=()),
            pacer=Pacer(concurrency=2, load_concurrency=2, max_wait_s=1),
        )
        try:
            ask = Ask(client)
            return await measured(CHECK, Line(ask)), ask
        finally:
            await client.aclose()


@pytest.mark.anyio
async def test_a_request_that_fails_again_breaks_its_promise():
    result, ask = await outcome_at([500, 500])
    assert result.ok is False
    assert "bad: answered 500" in result.cell["breach"]
    assert [e.status for e in ask.exchanges if e.label.startswith("bad")] == [500, 500]


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [[0] * 4, [0, 500], [500, 0, 0]])
async def test_a_request_that_is_cut_off_each_time_breaks_its_promise(bad):
    result, _ = await outcome_at(bad)
    assert result.ok is False


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("bad", "plain"),
    [
        ([500, 200], []),
        ([500, 500], [500]),
        ([500, 500], [400]),
        ([503, 503], []),
        ([502], []),
        ([0, 200], []),
        ([0] * 4, [0] * 4),
    ],
)
async def test_trouble_of_the_server_is_no_breach(bad, plain):
    with pytest.raises(EndpointError):
        await outcome_at(bad, plain)
