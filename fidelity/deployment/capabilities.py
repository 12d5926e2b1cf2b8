"""What a server can do, as discovery found it; suites ask by name."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fidelity.errors import CapabilityMissing, NotApplicable
from fidelity.records import CapabilityState


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Measured during discovery, one request at a time; None where usage did not tell."""

    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities(Mapping[str, CapabilityState]):
    """Capability name -> state, for every name of `deployment_spec.CAPABILITIES`.

    Attributes:
        states: the mapping itself.
        dialect: name of the dialect, given or recognised.
        version: what the server says of its version.
        max_model_len: longest prompt and answer together, in tokens; None when unknown.
        page_size: of the KV cache, in tokens; None when the server does not tell.
        models: names that the server lists.
        speed: of prefill and decode.
        requests: how many requests discovery took.
    """

    states: Mapping[str, CapabilityState]
    dialect: str = "openai"
    version: str = ""
    max_model_len: int | None = None
    page_size: int | None = None
    models: tuple[str, ...] = ()
    speed: Speed = field(default_factory=Speed)
    requests: int = 0

    def __getitem__(self, name: str) -> CapabilityState:
        return self.states[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    def has(self, name: str) -> bool:
        """Tell whether a capability is there and, where it can be, proven."""
        state = self.states.get(name)
        return state is not None and state.present

    @property
    def broken_promises(self) -> tuple[CapabilityState, ...]:
        """Capabilities that the deployment expects and discovery did not find."""
        return tuple(s for s in self.states.values() if s.expected and not s.present)


def require(
    names: Iterable[str],
    *,
    states: Mapping[str, CapabilityState],
    expects: Collection[str],
    deployment: str,
) -> None:
    """Require capabilities of a deployment.

    Args:
        names: what is required, in order.
        states: what discovery found.
        expects: what the deployment promises.
        deployment: its name, for the message.

    Raises:
        CapabilityMissing: the deployment expects one that is absent or unproven.
        NotApplicable: one is absent, and nobody promised it.
    """
    for name in names:
        state = states.get(name)
        if state is not None and state.present:
            continue
        detail = f" ({state.detail})" if state is not None and state.detail else ""
        unlock = (
            f"; the server's {state.unlock} unlocks it"
            if state is not None and state.unlock
            else ""
        )
        if name in expects:
            raise CapabilityMissing(
                f"{deployment} promises {name!r}, and it is absent or unproven{detail}{unlock}"
            )
        raise NotApplicable(f"the server has no {name}{detail}{unlock}")
