"""Connections: kept where a server allows it without counting."""

import pytest
from tiny_http import TinyServer

from fidelity.endpoint.transport import Transport


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
