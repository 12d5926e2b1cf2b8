"""Refusals in the shape of the OpenAI API: {"error": {"message", "type", "param", "code"}}."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from engine.errors import ContextOverflow, InvalidRequest, QueueFull

RETRY_AFTER_S = 1
QUEUE_FULL = "The request queue is full."  # SGLang's wording, which its clients look for


class ApiError(Exception):
    """A refusal on its way to the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON body, also sent as an event where a stream breaks off."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> Response:
        """The whole HTTP response."""
        return json_response(self.body(), self.status, self.headers)


def json_response(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """JSON as msgspec writes it: UTF-8, no spaces."""
    return Response(
        msgspec.json.encode(body), status, dict(headers or {}), media_type="application/json"
    )


def of_engine(error: InvalidRequest | QueueFull) -> ApiError:
    """How a refusal of the engine core looks to an HTTP client."""
    if isinstance(error, QueueFull):
        return ApiError(
            503,
            QUEUE_FULL,
            kind="service_unavailable_error",
            code="queue_full",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )
    code = "context_length_exceeded" if isinstance(error, ContextOverflow) else None
    return ApiError(400, str(error), code=code)
