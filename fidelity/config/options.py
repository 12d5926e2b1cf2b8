"""The one table of options.

It feeds pytest's `--fidelity-X`, `fidelity run --X`, the environment's FIDELITY_X and the keys of
[harness] in fidelity.toml, so that a setting has one name, one reader and one help text.
"""

import argparse
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fidelity.config.kinds import (
    ENV_NAME,
    PATH,
    TEXT,
    TRAFFIC,
    URL,
    Kind,
    integer,
    one_of,
    seconds,
    split_commas,
    split_shell,
)
from fidelity.statistics.divergence import DTYPES
from fidelity.words import Budget

DIALECT_NAMES = ("openai", "sglang", "vllm", "llamacpp", "transformers", "engine")
"""Spelled here because settings may not import the client side; a test holds both lists equal."""

_SWITCH = Kind("no value", bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting: how it is called, read and explained."""

    name: str
    """Words joined by dashes; the flag is --name or --fidelity-name."""
    kind: Kind
    help: str
    default: Any = None
    switch: bool = False
    """True for a flag without a value."""
    split: Callable[[str], list[str]] | None = None
    """Set for options that may be repeated: how one text becomes several values."""
    per_deployment: bool = False
    """True when [deployments.NAME] may set it too."""
    refused: str = ""
    """What to do instead, of an option that only microtests take: never ignored by claims."""

    @property
    def dest(self) -> str:
        """Field of `Settings` and key of fidelity.toml."""
        return self.name.replace("-", "_")

    @property
    def env(self) -> str:
        """Name in the environment."""
        return f"FIDELITY_{self.dest.upper()}"


OPTIONS: tuple[Option, ...] = (
    Option(name="base-url", kind=URL, help="measure this OpenAI-compatible server (URL/v1)"),
    Option(name="model", kind=TEXT, help="model name to ask for", per_deployment=True),
    Option(name="deployment", kind=TEXT, help="measure this deployment of fidelity.toml"),
    Option(name="config", kind=PATH, help="the fidelity.toml to read; otherwise searched upwards"),
    Option(
        name="budget",
        kind=one_of(Budget),
        default=Budget.QUICK,
        help="how many trials: quick, standard or deep; never changes a threshold",
    ),
    Option(name="run-dir", kind=PATH, help="folder of the run; otherwise a new one under runs/"),
    Option(name="resume", kind=_SWITCH, switch=True, default=False, help="continue the run there"),
    Option(
        name="golden",
        kind=TEXT,
        help="compare with this deployment: a name of fidelity.toml or a URL/v1; passive traffic",
    ),
    Option(
        name="dtype",
        kind=one_of(DTYPES),
        help="what the server computes in, for what rounding may move; otherwise as it says, else"
        " bfloat16",
        per_deployment=True,
    ),
    Option(
        name="patch",
        kind=TEXT,
        split=split_shell,
        default=(),
        help="patch of the microtests, NAME or NAME=VALUE; repeatable",
        refused="--launch-arg=--patch=NAME switches a patch of the embedded engine on",
    ),
    Option(
        name="checkpoint",
        kind=PATH,
        help="checkpoint folder of the microtests",
        refused="--launch-arg=--model=DIR serves another checkpoint",
    ),
    Option(
        name="inputs",
        kind=PATH,
        help="folder of dumped activations for the microtests",
        refused="leave it out",
    ),
    Option(
        name="launch-arg",
        kind=TEXT,
        split=split_shell,
        default=(),
        help="one more argument of the deployment's launch command; repeatable",
    ),
    Option(name="seed", kind=integer(0, 2**63 - 1), default=0, help="seed of every random draw"),
    Option(
        name="device",
        kind=one_of(("cpu", "cuda")),
        help="device of the microtests: cpu or cuda",
        refused="--launch-arg=--device --launch-arg=cuda runs the embedded engine on a GPU",
    ),
    Option(
        name="allow",
        kind=TRAFFIC,
        split=split_commas,
        default=(),
        help="traffic classes allowed beside passive: load,disruptive",
        per_deployment=True,
    ),
    Option(
        name="api-key-env",
        kind=ENV_NAME,
        help="environment variable that holds the API key",
        per_deployment=True,
    ),
    Option(
        name="dialect",
        kind=one_of(DIALECT_NAMES),
        help="what the server speaks beside the OpenAI API; otherwise discovered",
        per_deployment=True,
    ),
    Option(
        name="concurrency",
        kind=integer(1, 256),
        default=4,
        help="hard cap on requests in flight, passive traffic",
        per_deployment=True,
    ),
    Option(
        name="load-concurrency",
        kind=integer(1, 4096),
        default=32,
        help="hard cap on requests in flight, load and disruptive traffic",
        per_deployment=True,
    ),
    Option(
        name="max-requests",
        kind=integer(1),
        default=20_000,
        help="hard cap on requests of the run",
        per_deployment=True,
    ),
    Option(
        name="max-tokens",
        kind=integer(1),
        help="hard cap on tokens of the run, prompt and completion; otherwise from the budget and"
        " the measured speed",
        per_deployment=True,
    ),
    Option(
        name="max-wait-s",
        kind=seconds(0),
        default=120.0,
        help="hard cap on waiting for an overloaded server, per request",
        per_deployment=True,
    ),
    Option(
        name="max-time-s",
        kind=seconds(1),
        help="stop the run after this many seconds",
        per_deployment=True,
    ),
    Option(
        name="timeout-s",
        kind=seconds(0.01, 86_400),
        default=60.0,
        help="longest silence of the server; long prompts get more",
        per_deployment=True,
    ),
    Option(
        name="replica-header",
        kind=TEXT,
        split=split_commas,
        default=("x-replica", "x-replica-id", "x-backend", "x-worker-id", "x-served-by"),
        help="response headers that name the replica; the first present counts",
        per_deployment=True,
    ),
)

BY_DEST: Mapping[str, Option] = {option.dest: option for option in OPTIONS}


class _PytestGroup(Protocol):
    def addoption(self, *names: str, **attrs: Any) -> None: ...


class _PytestConfig(Protocol):
    def getoption(self, name: str) -> Any: ...


def _declaration(option: Option, dest: str) -> dict[str, Any]:
    if option.switch:
        return {"action": "store_true", "default": None, "dest": dest, "help": option.help}
    declared: dict[str, Any] = {"default": None, "dest": dest, "help": option.help}
    declared["metavar"] = option.dest.upper()
    declared["action"] = "append" if option.split else "store"
    return declared


def add_pytest_options(group: _PytestGroup) -> None:
    """Declare `--fidelity-X` for every option; values stay raw until `settings.resolve`."""
    for option in OPTIONS:
        declared = _declaration(option, f"fidelity_{option.dest}")
        group.addoption(f"--fidelity-{option.name}", **declared)


def add_cli_options(parser: argparse.ArgumentParser, only: Collection[str] | None = None) -> None:
    """Declare `--X` on a subcommand of `fidelity`: for every option, or those of these fields."""
    for option in OPTIONS:
        if only is not None and option.dest not in only:
            continue
        parser.add_argument(f"--{option.name}", **_declaration(option, option.dest))


def pytest_flags(config: _PytestConfig) -> dict[str, object]:
    """Return the raw flags given to pytest, by field name."""
    found = {option.dest: config.getoption(f"fidelity_{option.dest}") for option in OPTIONS}
    return {dest: value for dest, value in found.items() if value is not None}


def cli_flags(namespace: argparse.Namespace) -> dict[str, object]:
    """Return the raw flags given to `fidelity`, by field name."""
    found = {option.dest: getattr(namespace, option.dest, None) for option in OPTIONS}
    return {dest: value for dest, value in found.items() if value is not None}


def to_pytest_args(flags: Mapping[str, object]) -> list[str]:
    """Return the pytest arguments that carry these raw flags, each as one `--flag=value` word."""
    arguments: list[str] = []
    for option in OPTIONS:
        value = flags.get(option.dest)
        if value is None or value is False:
            continue
        flag = f"--fidelity-{option.name}"
        if option.switch:
            arguments.append(flag)
            continue
        values = value if isinstance(value, list | tuple) else [value]
        arguments += [f"{flag}={item}" for item in values]
    return arguments
