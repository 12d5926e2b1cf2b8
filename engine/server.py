"""The HTTP server of an engine: routes, the key, and every refusal in the OpenAI shape."""

import contextlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.admin import AdminEndpoints
from engine.bodies import read_bytes
from engine.chat import ChatEndpoint
from engine.completions import CompletionEndpoint
from engine.errors import InvalidRequest, QueueFull
from engine.event_stream import ClientGone
from engine.generation import GenerationFailed
from engine.http_errors import ApiError, of_engine
from engine.parts import EngineParts
from engine.serving import Serving

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/health"})
CLIENT_CLOSED_REQUEST = 499  # nobody reads it; it names the case in logs


class Server:
    """What an engine shows to the network. `app` is an ASGI application."""

    def __init__(self, engine: EngineParts, *, api_key: str | None = None) -> None:
        """With `api_key`, every path but /health needs it as a bearer token."""
        self.serving = Serving(engine)
        self.chat = ChatEndpoint(self.serving)
        self.completions = CompletionEndpoint(self.serving)
        self.admin = AdminEndpoints(self.serving, self.chat)
        app: ASGIApp = Starlette(routes=self._routes(), exception_handlers=_HANDLERS)
        self.app: ASGIApp = app if api_key is None else _KeyGuard(app, api_key)

    def _routes(self) -> list[Route]:
        admin = self.admin

        def post(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
            return Route(path, _function(endpoint), methods=["POST"])

        def get(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
            return Route(path, _function(endpoint), methods=["GET"])

        return [
            post("/v1/chat/completions", self.chat),
            post("/v1/completions", self.completions),
            get("/v1/models", admin.models),
            get("/v1/models/{model:path}", admin.model),
            post("/tokenize", admin.tokenize),
            post("/detokenize", admin.detokenize),
            Route("/flush_cache", admin.flush_cache, methods=["GET", "POST"]),
            post("/abort_request", admin.abort_request),
            get("/server_info", admin.server_info),
            get("/get_server_info", admin.server_info),
            get("/patches", admin.patches),
            get("/metrics", admin.metrics),
            get("/health", admin.health),
            get("/health_generate", admin.health_generate),
        ]


def _function(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Starlette takes objects with __call__ for ASGI applications; a function it calls."""

    async def call(request: Request) -> Response:
        return await endpoint(request)

    return call


class _KeyGuard:
    """Refuses requests without the key before anything reads them."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._allows(scope):
            await self._app(scope, receive, send)
            return
        with contextlib.suppress(ApiError, ClientGone):  # the body is thrown away in any case
            await read_bytes(Request(scope, receive), limit_bytes=0)
        error = ApiError(
            401,
            "The API key is missing or wrong; send it as 'Authorization: Bearer KEY'.",
            kind="authentication_error",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response()(scope, receive, send)

    def _allows(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)


async def _api_error(_request: Request, error: Exception) -> Response:
    return error.response() if isinstance(error, ApiError) else _unexpected()


async def _engine_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, InvalidRequest | QueueFull):
        return of_engine(error).response()
    return _unexpected()


async def _client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _failed(_request: Request, error: Exception) -> Response:
    return ApiError(500, str(error), kind="server_error").response()


async def _http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = f"{request.method} {request.url.path!r:.200}"
    if status == 404:
        message = f"There is no endpoint {what}."
    elif status == 405:
        message = f"{what} is not allowed; use another method."
    else:
        message = f"{what} was refused with status {status}."
    return ApiError(status, message).response()


async def _bug(_request: Request, _error: Exception) -> Response:
    return _unexpected()


def _unexpected() -> Response:
    """Starlette logs the traceback; a client learns nothing of the inside."""
    message = "The server failed on this request; its log says why."
    return ApiError(500, message, kind="server_error").response()


_HANDLERS: dict[Any, Any] = {
    ApiError: _api_error,
    InvalidRequest: _engine_error,
    QueueFull: _engine_error,
    ClientGone: _client_gone,
    GenerationFailed: _failed,
    HTTPException: _http,
    Exception: _bug,
}
