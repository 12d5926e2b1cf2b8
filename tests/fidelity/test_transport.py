"""Connections: kept where a server allows it without counting."""

import pytest
from tiny_http import TinyServer

from fidelity.endpoint.transport import Transport
from fidelity.errors import ConnectionCut


@pytest.mark.anyio
@pytest.mark.parametrize(("offer", "connections"), [("timeout=5", 1), ("timeout=5, max=100", 2)])
async def test_a_server_that_counts_requests_gets_a_connection_for_each(offer, connections):
    async def handle(request, connection):
        await connection.respond(200, {}, {"keep-alive": offer})
        connection.keep_alive = request.headers.get("connection") != "close"

    with TinyServer(handle) as server:
        transport = Transport(server.base_url)
        for _ in range(3):
            await transport.fetch("GET", f"{server.base_url}/x", timeout_s=5)
        await transport.aclose()
        asked = [r.headers.get("connection") == "close" for r in server.requests]
        assert server.connections == connections
        assert asked == [False, *[connections > 1] * 2]


class _Closing:
    """Answers, and closes kept connections without a word when their next request comes."""

    def __init__(self, *, always=False):
        self.always, self.served = always, set()

    async def __call__(self, request, connection):
        if self.always or connection in self.served:
            await connection.drop()
            return
        self.served.add(connection)
        await connection.respond(200, {})


@pytest.mark.anyio
async def test_a_kept_connection_that_was_closed_is_no_cut():
    with TinyServer(_Closing()) as server:
        transport = Transport(server.base_url)
        for _ in range(3):
            answer = await transport.fetch("GET", f"{server.base_url}/x", timeout_s=5)
            assert answer.status == 200
        await transport.aclose()


@pytest.mark.anyio
async def test_a_cut_on_a_new_connection_is_one():
    with TinyServer(_Closing(always=True)) as server:
        transport = Transport(server.base_url)
        with pytest.raises(ConnectionCut):
            await transport.fetch("GET", f"{server.base_url}/x", timeout_s=5)
        await transport.aclose()
        assert len(server.requests) == 1
