"""The user's real request profile: what every request of a run carries beside the question.

It comes from [request] of fidelity.toml and from [deployments.NAME.request], the latter on top.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAMPLING_KEYS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProfile:
    """Sampling, thinking, headers, certificates, system prompt and tools of every request.

    Attributes:
        sampling: OpenAI sampling fields; a probe that needs greedy overrides `temperature`.
        thinking: reasoning on or off, None leaves it to the server.
        reasoning_effort: sent as it is, None sends nothing.
        extra_body: further fields of the request body.
        headers: further headers, no secrets.
        headers_env: header name -> environment variable that holds its value.
        ca: file of certificate authorities; None trusts the system's.
        client_cert: client certificate file, with `client_key` when the key lies apart.
        proxy: HTTP proxy to go through; the environment's proxies are not used.
        system_prompt: put before messages that have no system turn of their own.
        tools: sent with every chat that brings no tools of its own.
    """

    sampling: Mapping[str, float] = field(default_factory=dict)
    thinking: bool | None = None
    reasoning_effort: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_env: Mapping[str, str] = field(default_factory=dict)
    ca: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    proxy: str | None = None
    system_prompt: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()

    def messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages as they are sent: with the system prompt unless they have one."""
        sent = [dict(message) for message in messages]
        has_system = bool(sent) and sent[0].get("role") in {"system", "developer"}
        if self.system_prompt is None or has_system:
            return sent
        return [{"role": "system", "content": self.system_prompt}, *sent]

    def tools_for(self, tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
        """Return the probe's own tools, else the profile's, else None."""
        chosen = self.tools if tools is None else tools
        return [dict(tool) for tool in chosen] or None
