"""What the command line asks of a triage."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from fidelity.config.kinds import Kind, integer, seconds
from fidelity.errors import ConfigError

REPEATS = 5
REQUESTS = 250
SECONDS = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the command line asks for.

    Attributes:
        file: chat or request log.
        entry: of a log with several, from 1.
        expect: texts that a good answer holds.
        reject: texts that it does not.
        stock: name or URL of a deployment to compare with.
        hops: URLs of other ways to the same model.
        repeats: replays of one arm.
        requests: bound on replays.
        seconds: bound on time.
        command: what repeats this.
    """

    file: Path
    entry: int | None
    expect: tuple[str, ...]
    reject: tuple[str, ...]
    stock: str | None
    hops: tuple[str, ...]
    repeats: int
    requests: int
    seconds: float
    command: tuple[str, ...]


def add_triage_options(parser: argparse.ArgumentParser) -> None:
    """Declare what only a triage has."""
    parser.add_argument("--entry", metavar="N", help="which request of a log with several")
    parser.add_argument(
        "--expect",
        action="append",
        metavar="TEXT",
        help="a good answer holds it: a fact that the chat tells; repeatable. Without --expect and"
        " --reject an answer fails that denies the conversation",
    )
    parser.add_argument(
        "--reject", action="append", metavar="TEXT", help="a good answer does not; repeatable"
    )
    parser.add_argument(
        "--stock", metavar="NAME_OR_URL", help="ask a deployment without the patches too"
    )
    parser.add_argument(
        "--hop",
        action="append",
        metavar="URL",
        help="another way to the same model, as a worker behind the router; repeatable",
    )
    parser.add_argument(
        "--repeats", default=str(REPEATS), metavar="N", help=f"replays of one arm ({REPEATS})"
    )
    parser.add_argument(
        "--requests", default=str(REQUESTS), metavar="N", help=f"bound on replays ({REQUESTS})"
    )
    parser.add_argument(
        "--seconds", default=str(SECONDS), metavar="S", help=f"bound on time ({SECONDS:g})"
    )


def triage_order(parsed: argparse.Namespace, command: tuple[str, ...]) -> Order:
    """Return what was asked for.

    Raises:
        ConfigError: a number out of range, or an empty text.
    """
    for flag in ("expect", "reject"):
        if any(not text.strip() for text in getattr(parsed, flag) or ()):
            raise ConfigError(f"--{flag} is empty")
    return Order(
        file=parsed.file,
        entry=_read("entry", integer(1), parsed.entry) if parsed.entry else None,
        expect=tuple(parsed.expect or ()),
        reject=tuple(parsed.reject or ()),
        stock=parsed.stock,
        hops=tuple(parsed.hop or ()),
        repeats=_read("repeats", integer(1, 100), parsed.repeats),
        requests=_read("requests", integer(10, 100_000), parsed.requests),
        seconds=_read("seconds", seconds(1), parsed.seconds),
        command=command,
    )


def _read(flag: str, kind: Kind, text: str) -> int:
    try:
        number: int = kind.read(text)
    except ValueError as error:
        raise ConfigError(f"--{flag}: expected {kind.accepted}, found {text!r} ({error})") from None
    return number
