"""A request on its way, and the refusal that lets it be sent again."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fidelity.config.redaction import Redactor
from fidelity.endpoint.pacing import read_retry_after
from fidelity.endpoint.statuses import Asked, message_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request as it will be sent; `prompt_tokens` is an upper estimate."""

    url: str
    body: bytes
    request_id: str
    prompt_tokens: int
    model: str
    key_env: str | None = None
    inline_think: bool = False

    @property
    def asked(self) -> Asked:
        """Return what error sentences name."""
        return Asked(method="POST", url=self.url, model=self.model, key_env=self.key_env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A 429 or 503: the server did not take the request, so that it may be sent again."""

    status: int
    retry_after_s: float | None
    said: str

    @classmethod
    def of(
        cls, status: int, headers: Mapping[str, str], body: bytes, redactor: Redactor
    ) -> "Refused":
        """Read the refusal."""
        return cls(
            status=status,
            retry_after_s=read_retry_after(headers.get("retry-after")),
            said=redactor.text(message_of(body)),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class Stopwatch:
    """Starts when it is made; `ttft_s` is set by the first delta that carries output."""

    started: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=_now)
    ttft_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def first(self) -> None:
        """Note the first output, once."""
        if self.ttft_s is None:
            self.ttft_s = self.elapsed_s
