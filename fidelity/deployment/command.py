"""A launch command with its placeholders filled in, and the addresses that they stand for."""

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fidelity.config.deployment_spec import ServerSpec
from fidelity.config.placeholders import PLACEHOLDER

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is: other servers of its deployment are told of it."""

    root_url: str
    bootstrap_port: int = 0

    @classmethod
    def of(cls, spec: ServerSpec) -> "Address":
        """Return the address of a server: the given one, or a free port of this machine."""
        root = spec.base_url or f"http://{_HOST}:{free_port()}"
        wanted = any("{bootstrap_port}" in text for text in (*spec.launch, *spec.env.values()))
        return cls(root_url=root.removesuffix("/v1"), bootstrap_port=free_port() if wanted else 0)

    @property
    def words(self) -> dict[str, str]:
        """What placeholders say of it, by name."""
        parts = urlsplit(self.root_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return {
            "url": self.root_url,
            "port": str(port),
            "host": parts.hostname or "",
            "bootstrap_port": str(self.bootstrap_port),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A launch command with its placeholders filled in."""

    arguments: tuple[str, ...]
    root_url: str
    env: Mapping[str, str] = field(default_factory=dict)
    teardown: tuple[str, ...] = ()

    @property
    def port(self) -> int:
        """Port that the server answers at."""
        return int(Address(root_url=self.root_url).words["port"])


def fill_in(
    spec: ServerSpec,
    extra: tuple[str, ...],
    address: Address,
    others: Mapping[str, Address] | None = None,
) -> Command:
    """Return the command for this address, with the extra arguments at its end.

    Args:
        spec: of the server.
        extra: further arguments, taken as they are.
        address: of the server itself.
        others: addresses of all roles, for {ROLE.url} and its like.
    """
    words = placeholders(address, others or {})
    return Command(
        arguments=(*(fill(word, words) for word in (*spec.launch, *spec.toggle_args)), *extra),
        root_url=address.root_url,
        env={name: fill(text, words) for name, text in {**spec.env, **spec.toggle_env}.items()},
        teardown=tuple(fill(word, words) for word in spec.teardown),
    )


def placeholders(address: Address, others: Mapping[str, Address]) -> dict[str, str]:
    """Return what each placeholder stands for."""
    words = {"python": sys.executable, **address.words}
    for role, other in others.items():
        words |= {f"{role}.{name}": value for name, value in other.words.items()}
    return words


def fill(text: str, words: Mapping[str, str]) -> str:
    """Return a text with its placeholders filled in; what is filled in is not looked at again."""
    return PLACEHOLDER.sub(lambda found: words.get(found[1], found[0]), text)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
