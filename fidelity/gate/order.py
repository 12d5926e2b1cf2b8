"""What a user may tell the gate: its own flags, and those of every run."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fidelity.config.options import OPTIONS, to_pytest_args

_OF_MICROTESTS = frozenset(option.dest for option in OPTIONS if option.refused) | {"seed"}
_OWN = frozenset({"run_dir", "resume", "config"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The gate's own flags; None and () where they were not given."""

    base: str | None
    baseline: Path | None
    baseline_update: bool
    microtests_only: bool
    accept_loosened: tuple[str, ...]
    accept_rule: tuple[str, ...] = ()


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("--base", metavar="REF", help="compare with where HEAD left this reference")
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE", help="hold what is measured against this file"
    )
    parser.add_argument(
        "--baseline-update", action="store_true", help="write what passed into the baseline"
    )
    parser.add_argument(
        "--microtests-only", action="store_true", help="run no suites: nothing is served"
    )
    parser.add_argument(
        "--accept-loosened",
        action="append",
        default=[],
        metavar="PATCH",
        help=(
            "let the microtest of this patch, or this file that microtests rest on, ask for less"
            " than it did; repeatable"
        ),
    )
    parser.add_argument(
        "--accept-rule",
        action="append",
        default=[],
        metavar="NAME",
        help="let the diff change this rule of the gate, as it is named; repeatable",
    )


def gate_order(parsed: argparse.Namespace) -> Order:
    """Return what was given."""
    return Order(
        base=parsed.base,
        baseline=parsed.baseline,
        baseline_update=parsed.baseline_update,
        microtests_only=parsed.microtests_only,
        accept_loosened=tuple(parsed.accept_loosened),
        accept_rule=tuple(parsed.accept_rule),
    )


def microtest_arguments(flags: Mapping[str, object]) -> list[str]:
    """Return the flags that microtests take, as pytest has them."""
    return to_pytest_args({k: v for k, v in flags.items() if k in _OF_MICROTESTS})


def run_flags(flags: Mapping[str, object]) -> list[str]:
    """Return the flags that go to `fidelity run`."""
    given = {
        k: v for k, v in flags.items() if k not in _OWN and (k == "seed" or k not in _OF_MICROTESTS)
    }
    return [word.replace("--fidelity-", "--", 1) for word in to_pytest_args(given)]
