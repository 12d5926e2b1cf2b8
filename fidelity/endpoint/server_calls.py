"""What a server is asked beside generation: models, metrics, patches, who it is, abort, flush.

Abort and flush check what is allowed before they send; discovery never calls them.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fidelity.config.redaction import Redactor
from fidelity.dialects import OPENAI, Dialect
from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.caps import Caps
from fidelity.endpoint.identity import Epochs, identity_of, tells_process
from fidelity.endpoint.outgoing import Refused
from fidelity.endpoint.pacing import Pacer, Waiting
from fidelity.endpoint.prometheus_text import parse_metrics, pick
from fidelity.endpoint.request_body import Quirks
from fidelity.endpoint.statuses import BUSY, Asked, not_json, trouble
from fidelity.endpoint.timeouts import Timeouts
from fidelity.endpoint.transport import Answer, Transport
from fidelity.errors import CapabilityMissing, ConfigError, EndpointError, TrafficRefused
from fidelity.words import Traffic

IDENTITY_EVERY_S = 20.0
_SMALL_ANSWER_S = 30.0


@dataclass(slots=True, kw_only=True)
class Server:
    """What the client knows about the server; discovery fills it in."""

    model: str
    dialect: Dialect = OPENAI
    quirks: Quirks = field(default_factory=Quirks)
    inline_think: bool = False
    version: str = ""
    has_metrics: bool = False
    has_server_info: bool = False
    tokenizer_distrust: str = ""
    """Why the tokenizer endpoint is not believed; "" while it is."""
    key_env: str | None = None
    shared: bool = False
    """True when other people may use it: its queue is watched."""
    describe_failure: Callable[[], str] = lambda: ""
    """What a launched server's own log says; appended to connection errors."""


class ServerCalls:
    """The small calls; `Client` adds generation on top."""

    def __init__(
        self,
        transport: Transport,
        server: Server,
        *,
        caps: Caps,
        pacer: Pacer,
        timeouts: Timeouts | None = None,
    ) -> None:
        """Send nothing yet."""
        self.transport = transport
        self.server = server
        self.caps = caps
        self.pacer = pacer
        self.epochs = Epochs()
        self.timeouts = timeouts or Timeouts()
        self._sent_ids: set[str] = set()
        self._aborted_ids: set[str] = set()
        self._identity_due = 0.0

    async def aclose(self) -> None:
        """Close every connection."""
        await self.transport.aclose()

    # ---- the server about itself

    async def models(self) -> list[dict[str, Any]]:
        """Return the entries of /v1/models."""
        url = f"{self.transport.base_url}/models"
        answer = self._json_of("GET", url, await self._waited_out("GET", url, None))
        try:
            data = shape.sequence(shape.mapping(answer, "the answer").get("data"), "data")
            return [shape.mapping(entry, "data[]") for entry in data]
        except shape.Malformed as error:
            raise not_json(self._about("GET", url), "", b"", error, self._redactor) from error

    async def metrics(self) -> dict[str, float]:
        """Return the Prometheus metrics, summed over labels; {} when there are none."""
        path = self.server.dialect.metrics_path
        if path is None:
            return {}
        answer = await self.get(f"{self.transport.root_url}{path}")
        return parse_metrics(answer.body.decode(errors="replace")) if answer.status == 200 else {}

    async def patches(self) -> list[dict[str, Any]]:
        """Return the live patches with their call counts; [] where the dialect has none."""
        path = self.server.dialect.patches_path
        if path is None:
            return []
        answer = await self._get_json(f"{self.transport.root_url}{path}")
        try:
            found = shape.sequence(shape.mapping(answer, "the answer").get("patches"), "patches")
            return [self._redactor.json(shape.mapping(entry, "patches[]")) for entry in found]
        except shape.Malformed as error:
            raise self._malformed("GET", path, error) from error

    async def server_info(self) -> dict[str, Any]:
        """Return what the server tells about itself, without secrets; {} where it does not."""
        path = self.server.dialect.server_info_path
        if path is None:
            return {}
        answer = await self._get_json(f"{self.transport.root_url}{path}")
        try:
            found: dict[str, Any] = self._redactor.json(shape.mapping(answer, "the answer"))
        except shape.Malformed as error:
            raise self._malformed("GET", path, error) from error
        return found

    async def identity(self) -> str:
        """Ask who answers now; see `identity.identity_of`.

        The first answer that tells the process is enough: behind several replicas the next one
        may come from another, and a mixture of two is nobody's identity.
        """
        info = await self.server_info() if self.server.has_server_info else {}
        metrics: dict[str, float] = {}
        if self.server.has_metrics and not tells_process(info):
            metrics = await self.metrics()
        version = self.server.version
        if self.server.dialect.version_path and not tells_process(info | metrics):
            url = f"{self.transport.root_url}{self.server.dialect.version_path}"
            answer = await self._get_json(url)
            version = str(answer.get("version", "")) if isinstance(answer, dict) else ""
        return identity_of(version=version, info=info, metrics=metrics, model=self.server.model)

    async def check_epoch(self) -> bool:
        """Ask who answers now; return True when a restart or a new version opened an epoch."""
        self._identity_due = time.monotonic() + IDENTITY_EVERY_S
        return self.epochs.observe(await self.identity())

    # ---- disruptive calls

    async def flush_cache(self) -> None:
        """Empty the server's prefix cache.

        Raises:
            TrafficRefused: disruptive traffic is not allowed.
            CapabilityMissing: no such call in this dialect.
        """
        self.caps.check_traffic(Traffic.DISRUPTIVE)
        path = self.server.dialect.flush_path
        if path is None:
            raise CapabilityMissing(
                f"a server of dialect {self.server.dialect.name!r} has no flush"
            )
        answer = await self._send("POST", f"{self.transport.root_url}{path}", b"")
        if answer.status != 200:
            raise self._trouble("POST", path, answer)

    async def abort(self, request_id: str) -> None:
        """Abort one request that this client sent, by its full id.

        Servers match ids by prefix, and an empty one would abort everybody's requests: only a
        full id that this client made itself is ever sent.

        Raises:
            TrafficRefused: disruptive traffic is not allowed, or the id is not one of ours.
            CapabilityMissing: no such call in this dialect.
        """
        self._check_abort()
        if request_id not in self._sent_ids or len(request_id) < 32:
            raise TrafficRefused(
                f"abort of {request_id!r} is refused: only full ids of this run's own requests are"
                " sent, since servers match ids by prefix"
            )
        path = self.server.dialect.abort_path or ""
        self._aborted_ids.add(request_id)
        body = {self.server.dialect.request_id_field or "rid": request_id}
        answer = await self._send("POST", f"{self.transport.root_url}{path}", as_json(body))
        if answer.status != 200:
            raise self._trouble("POST", path, answer)

    def _check_abort(self) -> None:
        self.caps.check_traffic(Traffic.DISRUPTIVE)
        if self.server.dialect.abort_path is None:
            raise CapabilityMissing(
                f"a server of dialect {self.server.dialect.name!r} has no abort call:"
                " abort by closing the connection instead"
            )

    @property
    def _redactor(self) -> Redactor:
        return self.transport.redactor

    def _with_log(self, error: EndpointError) -> EndpointError:
        said = self.server.describe_failure()
        return type(error)(f"{error}. {said}") if said else error

    def _about(self, method: str, url: str) -> Asked:
        return Asked(method=method, url=url, model=self.server.model, key_env=self.server.key_env)

    def _malformed(self, method: str, path: str, error: Exception) -> EndpointError:
        url = f"{self.transport.root_url}{path}"
        return not_json(self._about(method, url), "", b"", error, self._redactor)

    def _trouble(self, method: str, path: str, answer: Answer) -> EndpointError:
        url = f"{self.transport.root_url}{path}"
        content_type = answer.headers.get("content-type", "")
        return trouble(
            self._about(method, url), answer.status, content_type, answer.body, self._redactor
        )

    async def _read_queue(self) -> float | None:
        return pick(await self.metrics(), self.server.dialect.queue_gauges)

    async def _send(self, method: str, url: str, body: bytes | None) -> Answer:
        await self.caps.admit()
        headers = {"Content-Type": "application/json"} if body is not None else None
        try:
            return await self.transport.fetch(
                method,
                url,
                content=body,
                headers=headers,
                timeout_s=max(_SMALL_ANSWER_S, self.timeouts.idle_s),
            )
        except EndpointError as error:
            raise self._with_log(error) from error

    async def get(self, url: str) -> Answer:
        """GET a whole URL once, whatever its status."""
        return await self._send("GET", url, None)

    async def _get_json(self, url: str) -> Any:
        return self._json_of("GET", url, await self.get(url))

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        url = f"{self.transport.root_url}{path}"
        return self._json_of("POST", url, await self._waited_out("POST", url, as_json(body)))

    async def _waited_out(self, method: str, url: str, body: bytes | None) -> Answer:
        waiting = Waiting()
        while (answer := await self._send(method, url, body)).status in BUSY:
            asked = Refused.of(answer.status, answer.headers, answer.body, self._redactor)
            seen = f"{method} {url} answered {answer.status} ({asked.said!r})"
            await self.pacer.back_off(waiting, asked_s=asked.retry_after_s, seen=seen)
        return answer

    def _json_of(self, method: str, url: str, answer: Answer) -> Any:
        content_type = answer.headers.get("content-type", "")
        about = self._about(method, url)
        if answer.status != 200:
            raise trouble(about, answer.status, content_type, answer.body, self._redactor)
        try:
            return shape.parse(answer.body)
        except shape.Malformed as error:
            raise not_json(about, content_type, answer.body, error, self._redactor) from error


def as_json(body: Mapping[str, Any]) -> bytes:
    """Return a JSON body.

    Raises:
        ConfigError: something in it is no JSON.
    """
    try:
        return json.dumps(dict(body), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the request cannot be written as JSON: {error}") from error
