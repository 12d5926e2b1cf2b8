"""Reading a request body: bounded, JSON, typed; anything else is a 4xx in one sentence."""

import asyncio
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from engine.event_stream import ClientGone
from engine.http_errors import ApiError

UPLOAD_LIMIT_S = 60.0
# a refused upload is read on to this size and thrown away, so that the client gets the refusal
# instead of a reset connection
DISCARD_LIMIT_BYTES = 64 << 20

Body = TypeVar("Body", bound=msgspec.Struct)


async def read_body(request: Request, kind: type[Body], *, limit_bytes: int) -> Body:
    """The request's JSON body as `kind`.

    Raises:
        ApiError: 408, 413, 415, or 400 with the field and what was wrong with it.
        ClientGone: the client left while sending.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = request.headers.get("content-encoding", "identity").lower()
    raw = await read_bytes(request, limit_bytes=limit_bytes)
    if media_type != "application/json":
        raise ApiError(415, f"Content-Type is {media_type!r}, but must be 'application/json'.")
    if encoding != "identity":
        raise ApiError(415, f"Content-Encoding is {encoding!r}; send the body uncompressed.")
    return parse_body(raw, kind)


async def read_bytes(request: Request, *, limit_bytes: int) -> bytes:
    """The raw body, at most `limit_bytes` long. Raises as `read_body`."""
    received = bytearray()
    size = 0
    try:
        async with asyncio.timeout(UPLOAD_LIMIT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > DISCARD_LIMIT_BYTES:
                    break
                if size <= limit_bytes:
                    received += chunk
    except ClientDisconnect as error:
        raise ClientGone from error
    except TimeoutError as error:
        raise ApiError(408, f"the body did not arrive within {UPLOAD_LIMIT_S:.0f} s.") from error
    if size > limit_bytes:
        raise ApiError(
            413,
            f"the request body is larger than {limit_bytes} bytes (--max-request-bytes).",
            code="request_too_large",
        )
    return bytes(received)


def parse_body(raw: bytes, kind: type[Body]) -> Body:
    """Raises: ApiError: 400 with what is wrong and where."""
    try:
        body = msgspec.json.decode(raw, type=kind)
        has_nul = b"\\u0000" in raw and _contains_nul(msgspec.json.decode(raw))
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        param = path.rstrip("`").removeprefix("$.") or None
        where = f" at {param}" if param else ""
        raise ApiError(400, f"invalid request{where}: {message}.", param=param) from error
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise ApiError(400, "the body is not valid JSON: nested too deeply.") from error
    if has_nul:
        raise ApiError(400, "the body holds a NUL character (\\u0000), which no field may hold.")
    return body


def _contains_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_contains_nul(part) for item in value.items() for part in item)
    return isinstance(value, list) and any(_contains_nul(part) for part in value)
