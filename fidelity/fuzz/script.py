"""A script: literal requests to one server, to be played again by anybody, anywhere.

The file is JSON, strict: a field that nobody reads is refused. A follow-up builds on what the
server itself answered; nothing else of a server is in a script.
"""

from pathlib import Path
from typing import Any

import msgspec

from fidelity.errors import ConfigError
from fidelity.words import Traffic

FORMAT = "fidelity-script/1"
MOST_BYTES = 8 << 20

Message = dict[str, Any]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", forbid_unknown_fields=True):
    """One step; they are played one after the other."""


class Chat(Step, frozen=True, kw_only=True, omit_defaults=True, tag="chat"):
    """The next turn of a conversation, which begins with its first turn.

    Attributes:
        conversation: its name.
        say: text of the user's turn.
        given: literal messages before it: notes that were read, a tool that answered.
        of: begin as a fork of that conversation...
        turns: ...with so many of its turns.
        retry: say the last turn once more, in place of it.
        expect: the right answer, where it is known.
        others: the conversation's other facts; naming one of them is wrong.
        max_tokens: of the answer.
        temperature: above 0 the answer is not compared, only searched for foreign facts.
        seed: of sampling.
        stream: False asks for one piece.
        tools: offered.
    """

    conversation: str
    say: str
    given: tuple[Message, ...] = ()
    of: str = ""
    turns: int = 0
    retry: bool = False
    expect: str = ""
    others: tuple[str, ...] = ()
    max_tokens: int = 40
    temperature: float = 0.0
    seed: int | None = None
    stream: bool = True
    tools: tuple[Message, ...] = ()


class Abort(Step, frozen=True, kw_only=True, omit_defaults=True, tag="abort"):
    """A turn that is left before its end.

    Attributes:
        conversation: its name; it begins with its first turn.
        say: text of the user's turn.
        given: literal messages before it.
        after_deltas: of the answer, until we leave; 0 is as soon as the server answers at all.
        by_call: by the server's abort call, not by closing the connection.
        keep_partial: the conversation goes on with the partial answer; otherwise without the turn.
        max_tokens: that the answer could have had.
    """

    conversation: str
    say: str
    given: tuple[Message, ...] = ()
    after_deltas: int = 1
    by_call: bool = False
    keep_partial: bool = False
    max_tokens: int = 200
    tools: tuple[Message, ...] = ()


class Flood(Step, frozen=True, kw_only=True, tag="flood"):
    """A long request of a stranger, to evict what is cached."""

    say: str


class Flush(Step, frozen=True, kw_only=True, tag="flush"):
    """The server's prefix cache is emptied."""


class Together(Step, frozen=True, kw_only=True, tag="together"):
    """Requests of several conversations at once."""

    steps: tuple[Chat | Abort, ...]


AnyStep = Chat | Abort | Flood | Flush | Together


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps, and which fact was told to which conversation.

    Attributes:
        format: of the file.
        about: one sentence: where it comes from, what it showed.
        facts: code -> the conversation that was told it: a foreign one is a leak.
        steps: in order.
    """

    format: str = FORMAT
    about: str = ""
    facts: dict[str, str] = {}
    steps: tuple[AnyStep, ...] = ()

    @property
    def requests(self) -> int:
        """Requests that the script itself sends."""
        return sum(len(parts_of(step)) for step in self.steps)

    @property
    def traffic(self) -> Traffic:
        """The highest traffic class of any step."""
        flat = [part for step in self.steps for part in parts_of(step)]
        if any(isinstance(s, Flood | Flush) or (isinstance(s, Abort) and s.by_call) for s in flat):
            return Traffic.DISRUPTIVE
        most = max((len(s.steps) for s in self.steps if isinstance(s, Together)), default=1)
        return Traffic.LOAD if most > MOST_TOGETHER else Traffic.PASSIVE


MOST_TOGETHER = 3
"""Requests at once that are no load yet."""


def parts_of(step: AnyStep) -> tuple[AnyStep, ...]:
    """Return the requests of a step."""
    return step.steps if isinstance(step, Together) else (step,)


def written(script: Script) -> bytes:
    """Return the file of a script, for people to read."""
    return msgspec.json.format(msgspec.json.encode(script), indent=1) + b"\n"


def read_script(path: Path) -> Script:
    """Read a script.

    Raises:
        ConfigError: no file, not JSON, another format, or a step that does not fit.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the script {path}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{path} is no script: {len(data)} bytes, {MOST_BYTES} at most")
    try:
        script = msgspec.json.decode(data, type=Script)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no script: {error}") from error
    if script.format != FORMAT:
        raise ConfigError(f"{path} has the format {script.format!r}, this version reads {FORMAT!r}")
    _check(script, path)
    return script


def _check(script: Script, path: Path) -> None:
    known: set[str] = set()
    for number, step in enumerate(script.steps, start=1):
        parts = parts_of(step)
        for part in parts:
            if isinstance(part, Chat) and (part.of or part.retry):
                wanted = part.of or part.conversation
                if wanted not in known:
                    raise ConfigError(f"{path}, step {number}: no conversation {wanted!r} yet")
        known |= {part.conversation for part in parts if isinstance(part, Chat | Abort)}
        names = [part.conversation for part in parts if isinstance(part, Chat | Abort)]
        if len(set(names)) < len(names):
            raise ConfigError(f"{path}, step {number}: one conversation twice at the same time")
