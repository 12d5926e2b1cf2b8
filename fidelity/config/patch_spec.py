"""A patch as [[patch]] describes it, and what switches it on and off at launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fidelity.config.deployment_spec import ServerSpec

PHASES = ("prefill", "decode", "both", "encoding", "config")
_Spec = TypeVar("_Spec", bound=ServerSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toggle:
    """What a launch command gets to switch a patch: further arguments, environment, or both.

    `{value}` in them is the VALUE of "NAME=VALUE".
    """

    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """True when it switches nothing."""
        return not (self.flags or self.env)

    @property
    def takes_value(self) -> bool:
        """True when it says nothing without the VALUE of NAME=VALUE."""
        return any("{value}" in text for text in (*self.flags, *self.env.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What proves that a patch is live: one source, and what must be seen there.

    Attributes:
        patches: name in the server's own list of patches: it is on, and it has run.
        server_info: dotted path into the server's info.
        metric: name of a Prometheus metric, summed over its labels.
        log: regular expression that a line of the server's log matches.
        equals: value that `server_info`, `metric` or the patch's value must have.
        at_least: number that `metric` or `server_info` must reach.
        role: whose server is asked; "" is the role that has the patch, else the deployment.
    """

    patches: str = ""
    server_info: str = ""
    metric: str = ""
    log: str = ""
    equals: str | float | bool | None = None
    at_least: float | None = None
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSpec:
    """One patch of the user's stack.

    Attributes:
        name: of the patch.
        files: globs of the files that make it up, relative to fidelity.toml.
        commit: that brought it in.
        phase: when it runs: prefill, decode, both, encoding, or config.
        unconditional: it has no toggle and always runs.
        on: switches it on at launch.
        off: switches it off.
        microtest: the pytest file that holds it against fp32 maths, relative to fidelity.toml.
        suites: suites that it can affect; () means all.
        active_when: what proves that it is live.
    """

    name: str
    files: tuple[str, ...] = ()
    commit: str = ""
    phase: str = "both"
    unconditional: bool = False
    on: Toggle = field(default_factory=Toggle)
    off: Toggle = field(default_factory=Toggle)
    microtest: str = ""
    suites: tuple[str, ...] = ()
    active_when: Condition | None = None

    @property
    def can_toggle(self) -> bool:
        """True when a launch command can be made to run with it or without it."""
        return not (self.on.empty and self.off.empty)


def split_value(text: str) -> tuple[str, str]:
    """Return (NAME, VALUE) of "NAME" or "NAME=VALUE"."""
    name, _, value = text.partition("=")
    return name, value


def with_patches(spec: _Spec, chosen: Sequence[str], patches: Mapping[str, PatchSpec]) -> _Spec:
    """Return the server with exactly these patches on, as far as patches can be switched.

    Args:
        spec: of a server that has a launch command.
        chosen: "NAME" or "NAME=VALUE" of those that are on; all others are switched off.
        patches: every [[patch]] of the file, by name.
    """
    values = dict(split_value(text) for text in chosen)
    flags: list[str] = []
    env: dict[str, str] = {}
    for name, patch in patches.items():
        toggle = patch.on if name in values else patch.off
        value = values.get(name, "")
        flags += [flag.replace("{value}", value) for flag in toggle.flags]
        env |= {key: text.replace("{value}", value) for key, text in toggle.env.items()}
    return replace(spec, patches=tuple(chosen), toggle_args=tuple(flags), toggle_env=env)
