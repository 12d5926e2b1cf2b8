"""HTTP underneath the client: bytes as the server sent them, bounded, and every failure a sentence.

A request is sent once. Nothing here repeats one, since it may have been executed.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx

from fidelity.config.profile import RequestProfile
from fidelity.config.redaction import Redactor, is_secret_name
from fidelity.errors import ConfigError, ConnectionCut, EndpointError

MAX_BODY_BYTES = 256 << 20
CONNECT_TIMEOUT_S = 10.0
# below the 5 s after which common servers close an idle connection, so that a request does not
# meet a connection that dies under it: it could not be repeated
_KEEPALIVE_S = 2.0
_KEPT_CONNECTIONS = 64


_CUTS = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


def _noting(opened: list[str]) -> Callable[[str, object], Awaitable[None]]:
    """Return what notes each connection that a request opens for itself."""

    async def note(event: str, info: object) -> None:
        del info
        if event.startswith("connection.connect"):
            opened.append(event)

    return note


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Incoming:
    """An answer whose body is still to come."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes] = field(default_factory=_nothing)


class Transport:
    """Sends requests to one server. For one event loop; close it with `aclose`."""

    def __init__(
        self,
        base_url: str,
        *,
        profile: RequestProfile | None = None,
        headers: Mapping[str, str] | None = None,
        redactor: Redactor | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """Open nothing yet.

        Args:
            base_url: with its /v1.
            profile: headers, certificates and proxy come from it.
            headers: further headers, secrets among them.
            redactor: cleans every sentence and header that leaves this class.
            max_body_bytes: bound of one whole answer.

        Raises:
            ConfigError: a certificate file cannot be used.
        """
        profile = profile or RequestProfile()
        self.base_url = base_url.rstrip("/")
        self.root_url = _root(self.base_url)
        self.redactor = redactor or Redactor()
        self._max_body_bytes = max_body_bytes
        self._one_each = False
        self._http = httpx.AsyncClient(
            headers={
                "User-Agent": "fidelity-harness",
                "Accept-Encoding": "identity",
                **profile.headers,
                **(headers or {}),
            },
            verify=_tls(profile),
            proxy=profile.proxy,
            trust_env=False,  # the environment's proxies and .netrc are not settings of the run
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S, write=60.0),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=_KEPT_CONNECTIONS,
                keepalive_expiry=_KEEPALIVE_S,
            ),
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Answer:
        """Send one request and read its whole answer, whatever its status.

        Raises:
            EndpointError: unreachable, cut, silent for `timeout_s`, or too long.
        """
        body = bytearray()
        try:
            with anyio.fail_after(timeout_s):
                async with self.stream(method, url, content=content, headers=headers) as incoming:
                    async for chunk in incoming.chunks:
                        body += chunk
                        if len(body) > self._max_body_bytes:
                            raise EndpointError(
                                f"{method} {url} answers with more than"
                                f" {self._max_body_bytes} bytes: nothing of this API is so long"
                            )
        except TimeoutError:
            raise EndpointError(
                f"{method} {url} gave no whole answer within {timeout_s:.0f} s: look at the"
                " server's log, or raise --fidelity-timeout-s"
            ) from None
        return Answer(incoming.status, incoming.headers, bytes(body))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Incoming]:
        """Send one request; leaving the block before the end closes the connection.

        Time is the caller's business.

        Raises:
            EndpointError: unreachable or cut.
        """
        try:
            response = await self._send(method, url, content, headers or {})
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, ValueError) as error:
            raise self._trouble(method, url, error) from error
        try:
            clean = {
                name.lower(): self.redactor.text(value)
                for name, value in response.headers.multi_items()
                if not is_secret_name(name)
            }
            async with aclosing(self._chunks(method, url, response)) as chunks:
                yield Incoming(response.status_code, clean, chunks)
        finally:
            await response.aclose()

    async def _send(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> httpx.Response:
        """Send one request, once more where a kept connection turns out to be closed already.

        A server may close an idle connection while a request is on its way: nothing was answered,
        and any client sends it again (RFC 9110, 9.2.2). On a new connection a cut is a cut.
        """
        for tries_left in range(_KEPT_CONNECTIONS, -1, -1):
            opened: list[str] = []
            sent = {**headers, **({"Connection": "close"} if self._one_each else {})}
            request = self._http.build_request(
                method, url, content=content, headers=sent, extensions={"trace": _noting(opened)}
            )
            try:
                response = await self._http.send(request, stream=True)
            except _CUTS:
                if opened or not tries_left:
                    raise
                continue
            # A server that counts the requests of a connection closes it behind the last: from
            # here on each request gets a connection of its own.
            self._one_each = self._one_each or "max=" in response.headers.get("keep-alive", "")
            return response
        raise AssertionError("the last try returns or raises")

    async def _chunks(
        self, method: str, url: str, response: httpx.Response
    ) -> AsyncGenerator[bytes, None]:
        try:
            body = cast("AsyncGenerator[bytes, None]", response.aiter_bytes())
            async with aclosing(body) as chunks:
                async for chunk in chunks:
                    yield chunk
        except httpx.HTTPError as error:
            raise self._trouble(method, url, error) from error

    def _trouble(self, method: str, url: str, error: Exception) -> EndpointError:
        detail = self.redactor.text(str(error).strip().rstrip(".")) or type(error).__name__
        what = _explain(error)
        kind = ConnectionCut if isinstance(error, _CUTS) else EndpointError
        return kind(f"{method} {url}: {what} ({detail[:200]})")


# the first that fits counts: subclasses before their parents
_EXPLANATIONS: tuple[tuple[type[Exception], str], ...] = (
    (
        httpx.ConnectTimeout,
        f"no connection within {CONNECT_TIMEOUT_S:.0f} s: check host, port and firewall",
    ),
    (httpx.ConnectError, "cannot connect: start the server or correct the base URL"),
    (
        httpx.RemoteProtocolError,
        "the connection was cut before the answer ended: look at the server's log",
    ),
    (httpx.NetworkError, "the connection broke: look at the server's log"),
    (httpx.TimeoutException, "the server takes no bytes: look at its load"),
    (httpx.DecodingError, "the body is not in the encoding that its header names"),
)


def _explain(error: Exception) -> str:
    """Say what happened and what to do, for each way in which a connection fails."""
    if "CERTIFICATE_VERIFY" in str(error):
        return "the server's certificate is not trusted: set ca in [request]"
    for kind, sentence in _EXPLANATIONS:
        if isinstance(error, kind):
            return sentence
    return "the request cannot be sent: correct the base URL and the headers"


def _root(base_url: str) -> str:
    """Return the server's root: the base URL without a last segment like /v1."""
    parts = urlsplit(base_url)
    head, _, last = parts.path.rstrip("/").rpartition("/")
    is_version = last.startswith("v") and last[1:].isdecimal()
    path = head if is_version else parts.path.rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _tls(profile: RequestProfile) -> ssl.SSLContext | bool:
    if profile.ca is None and profile.client_cert is None:
        return True
    try:
        context = ssl.create_default_context(cafile=str(profile.ca) if profile.ca else None)
        if profile.client_cert:
            key = str(profile.client_key) if profile.client_key else None
            context.load_cert_chain(str(profile.client_cert), key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(
            str(f) for f in (profile.ca, profile.client_cert, profile.client_key) if f
        )
        raise ConfigError(f"cannot use the certificate files {files}: {error}") from error
    return context
