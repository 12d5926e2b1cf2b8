"""The command `fidelity`: composition root. `run`, `plan` and `replay` only call pytest.

Exit codes: a fail 1; error, inconclusive, bad usage 2; interrupted (Ctrl-C or SIGTERM) 130;
otherwise 0.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fidelity.config.options import add_cli_options, cli_flags, to_pytest_args
from fidelity.config.settings import MICROTEST_FIELDS
from fidelity.errors import ConfigError, FidelityError, JournalError
from fidelity.gate.order import add_gate_options, gate_order
from fidelity.triage.order import add_triage_options, triage_order
from fidelity.verdicts.verdict import EXIT_INTERRUPTED, EXIT_UNDECIDED

if TYPE_CHECKING:
    from fidelity.deployment.deployment import Deployment
    from fidelity.deployment.doctor import SuiteCost
    from fidelity.records import CapabilityState
    from fidelity.runs.plan import PlannedClaim

SUITES = Path(__file__).resolve().parents[1] / "suites"
_OWN = (
    "-c",
    os.devnull,
    f"--rootdir={SUITES.parent}",
    "--import-mode=importlib",
    "-p",
    "no:cacheprovider",
)
"""Of pytest: apart from the user's own configuration of it, which is about the user's tests."""


class Caller:
    """A pytest plugin without hooks, by which a subcommand and the run speak.

    Attributes:
        command: what repeats this run.
        capabilities: of a server that was explored; a plan is made for its limits.
        planned: the costs that a plan found.
    """

    __name__ = "fidelity-command"  # the name under which pytest registers it

    def __init__(
        self,
        command: tuple[str, ...],
        capabilities: Mapping[str, CapabilityState] | None = None,
    ) -> None:
        self.command = command
        self.capabilities = capabilities
        self.planned: tuple[PlannedClaim, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    parsed = parser.parse_args(words)
    action: Callable[[argparse.Namespace, list[str]], int] = parsed.action
    try:
        return action(parsed, words)
    except FidelityError as error:
        print(f"fidelity: {error}", file=sys.stderr)
        return EXIT_UNDECIDED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fidelity",
        description="Does a deployment read its context, on every path? Measured over its API.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = _command(commands, "run", "measure a deployment", _run)
    _add_selection(run)
    add_cli_options(run)
    plan = _command(commands, "plan", "say what a run would send, and send nothing", _plan)
    _add_selection(plan)
    add_cli_options(plan)
    report = _command(commands, "report", "write report.html and summary.md of a run anew", _report)
    report.add_argument("run", type=Path, metavar="RUN", help="run folder, e.g. runs/latest")
    doctor = _command(
        commands, "doctor", "say what a server can do, and what unlocks more", _doctor
    )
    doctor.add_argument("url", nargs="?", metavar="URL", help="URL/v1 of the server")
    add_cli_options(doctor)
    replay = _command(
        commands, "replay", "send one trial of a run again, or play a script again", _replay
    )
    replay.add_argument(
        "run",
        type=Path,
        metavar="RUN|SCRIPT.json",
        help="run folder, e.g. runs/latest; or a script",
    )
    replay.add_argument(
        "trial", nargs="?", metavar="TRIAL", help="id of the trial in RUN, e.g. t0123456789ab"
    )
    add_cli_options(replay)
    _add_triage(commands)
    gate = _command(commands, "gate", "may this change of patches merge? (CI)", _gate)
    add_gate_options(gate)
    add_cli_options(gate)
    schema = _command(commands, "schema", "print the JSON schema of fidelity.toml", _schema)
    schema.add_argument(
        "--reference", action="store_true", help="its keys as Markdown, for docs/configuration.md"
    )
    schema.add_argument(
        "--into",
        type=Path,
        metavar="FILE",
        help="write it there; a reference replaces what stands behind its mark",
    )
    micro = _command(
        commands, "micro", "convict or exonerate each patch of this checkout by numbers", _micro
    )
    add_cli_options(micro, only=MICROTEST_FIELDS)
    diff = _command(commands, "diff", "compare the findings of two runs", _diff)
    diff.add_argument("before", type=Path, metavar="RUN")
    diff.add_argument("after", type=Path, metavar="RUN")
    dumps = _command(
        commands, "golden-dumps", "name the first layer and token where two dumps part", _dumps
    )
    dumps.add_argument("measured", type=Path, metavar="DIR", help="of --dump-activations")
    dumps.add_argument("golden", type=Path, metavar="DIR", help="the same texts, by the golden")
    return parser


def _add_triage(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    triage = _command(commands, "triage", "take a failing chat of your own apart", _triage)
    triage.add_argument(
        "file",
        type=Path,
        metavar="CONVERSATION",
        help="OpenAI messages as JSON (with tools and parameters), or a request log",
    )
    add_triage_options(triage)
    add_cli_options(triage)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    words: str,
    action: Callable[[argparse.Namespace, list[str]], int],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=words, description=words, allow_abbrev=False)
    parser.set_defaults(action=action)
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE",
        help="suites by name (needle_sweep) or by path; all of the product when none is named",
    )
    parser.add_argument("-k", dest="keyword", metavar="EXPR", help="as pytest -k")
    parser.add_argument("-x", dest="first", action="store_true", help="stop at the first failure")
    parser.add_argument("-v", dest="verbose", action="store_true", help="show tracebacks too")


def _run(parsed: argparse.Namespace, words: list[str]) -> int:
    """Print what is measured, then let pytest measure it."""
    _say_what_is_measured(parsed)
    return _pytest(parsed, ("fidelity", *words))


def _plan(parsed: argparse.Namespace, words: list[str]) -> int:
    """Let the suites say what they would send."""
    _say_what_is_measured(parsed)
    return _pytest(parsed, ("fidelity", *words), "--fidelity-plan", "-q")


def _say_what_is_measured(parsed: argparse.Namespace) -> None:
    from fidelity.config.settings import resolve

    print(f"fidelity: {resolve(cli_flags(parsed)).measured}", flush=True)


def _pytest(parsed: argparse.Namespace, command: tuple[str, ...], *more: str) -> int:
    chosen = [str(_suite(name)) for name in parsed.suites] or [str(_all_suites())]
    arguments = [
        *chosen,
        *(["-v", "--tb=short"] if parsed.verbose else ["--tb=no"]),
        *(["-x"] if parsed.first else []),
        *(["-k", parsed.keyword] if parsed.keyword else []),
        *to_pytest_args(cli_flags(parsed)),
        *more,
    ]
    return call_pytest(arguments, command)


def call_pytest(arguments: Sequence[str], command: tuple[str, ...]) -> int:
    """Run pytest in this process and return the exit code of `fidelity`."""
    import pytest

    code = int(pytest.main([*_OWN, "--no-header", "-rN", *arguments], plugins=[Caller(command)]))
    return code if code in {0, 1, EXIT_INTERRUPTED} else EXIT_UNDECIDED


def _all_suites() -> Path:
    if not SUITES.is_dir():
        raise ConfigError(f"the suites are not installed: {SUITES} is not there")
    return SUITES


def _suite(name: str) -> Path | str:
    """Return the path of a suite that is named by its stem, or the path that was given."""
    given = name.partition("::")[0]
    if Path(given).exists():
        return name
    stem = given.removeprefix("test_").removesuffix(".py")
    path = _all_suites() / f"test_{stem}.py"
    if not path.exists():
        from fidelity.config.kinds import nearest

        known = sorted(found.stem.removeprefix("test_") for found in SUITES.glob("test_*.py"))
        raise ConfigError(
            f"no suite named {name!r}{nearest(stem, known)}; known: {', '.join(known) or 'none'}"
        )
    return str(path) + name[len(given) :]


def _report(parsed: argparse.Namespace, words: list[str]) -> int:
    """Render a run folder again; the journal alone decides what it says."""
    del words
    import reports

    folder = parsed.run.resolve()
    if not (folder / "run.jsonl").exists():
        raise JournalError(f"{parsed.run} is no run folder: run.jsonl is not there")
    reports.build(folder)
    print(f"report: {folder / 'report.html'}")
    return 0


def _doctor(parsed: argparse.Namespace, words: list[str]) -> int:
    """Say what a server can do."""
    del words
    from fidelity.deployment import doctor

    if parsed.url:
        if parsed.base_url:
            raise ConfigError("a URL and --base-url were given: give one of them")
        parsed.base_url = parsed.url
    flags = cli_flags(parsed)

    def costs(deployment: Deployment) -> list[doctor.SuiteCost]:
        return _suite_costs(flags, deployment)

    return doctor.main(flags, costs=costs if SUITES.is_dir() else None)


def _suite_costs(flags: Mapping[str, object], deployment: Deployment) -> list[SuiteCost]:
    """Return what each suite would cost on a server that was explored."""
    import pytest

    from fidelity.deployment.doctor import SuiteCost

    caller = Caller((), deployment.capabilities)
    words = [*_OWN, "-p", "no:terminal", "--fidelity-plan", *to_pytest_args(flags)]
    pytest.main([*words, str(SUITES)], plugins=[caller])
    suites: dict[str, list[PlannedClaim]] = {}
    for cost in caller.planned:
        suites.setdefault(cost.claim.partition("/")[0], []).append(cost)
    return [
        SuiteCost(
            suite=suite,
            requests=sum(cost.requests for cost in claims),
            tokens=sum(cost.tokens for cost in claims),
            needs=tuple(dict.fromkeys(name for cost in claims for name in cost.needs)),
            traffic=frozenset(kind for cost in claims for kind in cost.traffic),
        )
        for suite, claims in suites.items()
    ]


def _triage(parsed: argparse.Namespace, words: list[str]) -> int:
    """Replay and shrink a chat while it fails, ask the cheap questions, say where it was lost."""
    from fidelity.triage import command

    return command.main(cli_flags(parsed), triage_order(parsed, ("fidelity", *words)))


def _gate(parsed: argparse.Namespace, words: list[str]) -> int:
    """Map a diff to patches, run their microtests and suites; exit 1 when it must not merge."""
    del words
    from fidelity.gate import command

    return command.main(cli_flags(parsed), gate_order(parsed))


def _replay(parsed: argparse.Namespace, words: list[str]) -> int:
    """Send one trial again and show it beside what the run saw; or play a script again."""
    if parsed.trial is None:
        return _play_script(parsed, words)
    from fidelity.runs import replay

    with replay.prepared(parsed.run.resolve(), parsed.trial) as copy:
        repeated = _repeated(copy.command)
        given = cli_flags(parsed)
        call_pytest([*repeated, *to_pytest_args(given), *copy.arguments], ("fidelity", *words))
        lines, code = copy.compared()
    print("\n".join(lines))
    return code


def _play_script(parsed: argparse.Namespace, words: list[str]) -> int:
    """Play a script against a deployment; exit 1 when an answer is not what it is alone."""
    if parsed.run.is_dir():
        raise ConfigError(f"{parsed.run} is a run: name one of its trials, or a script's file")
    from fidelity.fuzz import replaying

    _say_what_is_measured(parsed)
    with replaying.test_of(parsed.run) as test:
        arguments = [str(test), "--tb=no", *to_pytest_args(cli_flags(parsed))]
        return call_pytest(arguments, ("fidelity", *words))


def _repeated(command: Sequence[str]) -> list[str]:
    """Return the pytest arguments of the command that a manifest holds, less its run folder."""
    if command[:1] == ("pytest",):
        return list(command[1:])  # the manifest's command names no run folder
    if command[1:2] == ("triage",):
        raise ConfigError(
            "a replay of a triage is sent again by `fidelity triage RUN/smallest.json`, or by"
            " RUN/smallest.sh"
        )
    parsed = _parser().parse_args(list(command[1:]))
    flags = {k: v for k, v in cli_flags(parsed).items() if k not in {"resume", "run_dir"}}
    chosen = [str(_suite(name)) for name in parsed.suites] or [str(_all_suites())]
    return [*chosen, *to_pytest_args(flags)]


def _schema(parsed: argparse.Namespace, words: list[str]) -> int:
    """Print what may stand in fidelity.toml: for editors, or for people."""
    del words
    from fidelity.config.reference import BEGIN, reference_text
    from fidelity.config.schema import schema_text

    text = reference_text() if parsed.reference else schema_text()
    if parsed.into is None:
        print(text, end="")
    elif parsed.reference:
        kept, mark, _ = parsed.into.read_text(encoding="utf-8").partition(BEGIN)
        if not mark:
            raise ConfigError(f"{parsed.into} has no line {BEGIN}")
        parsed.into.write_text(kept + text, encoding="utf-8")
    else:
        parsed.into.write_text(text, encoding="utf-8")
    return 0


def _dumps(parsed: argparse.Namespace, words: list[str]) -> int:
    """Return 1 when the dumps part, 0 when they agree."""
    del words
    from fidelity.golden.dumps import compare, lines_of

    found = compare(parsed.measured, parsed.golden)
    print("\n".join(lines_of(found)))
    return 1 if found.first is not None else 0


def _micro(parsed: argparse.Namespace, words: list[str]) -> int:
    """Examine the patches in a process of their own; the exit code is that of the verdicts."""
    import reports
    from fidelity.runs import microtests

    order = microtests.Order(
        flags=cli_flags(parsed), patches=SUITES / "patches", command=("fidelity", *words)
    )
    return microtests.main(order, render=reports.build)


def _diff(parsed: argparse.Namespace, words: list[str]) -> int:
    """Compare two runs claim by claim; exit 1 when the later one is worse."""
    del words
    from fidelity.runs.difference import difference_lines

    lines, worse = difference_lines(parsed.before.resolve(), parsed.after.resolve())
    print("\n".join(lines))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
