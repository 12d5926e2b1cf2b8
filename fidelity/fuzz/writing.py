"""Writes a failing game down: in words, as a script to play again, and as a test to commit."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from fidelity.fuzz.moves import Kind, Move, Moves, Style
from fidelity.fuzz.script import Script, written
from fidelity.words import Traffic

if TYPE_CHECKING:
    from fidelity.config.settings import Settings

_TEST = '''"""{about}

Replays {name} beside this file: each of its answers must be what it is alone.
Run it: pytest {test} --fidelity-base-url URL/v1 (a fresh server; it may need --fidelity-allow).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from fidelity.fuzz.replaying import hold_script


def test_each_answer_of_the_script_is_what_it_is_alone(measure):
    hold_script(measure, Path(__file__).with_name("{name}"))
'''


def in_words(moves: Moves) -> str:
    """Return a game in one line."""
    return " -> ".join(_words(move) for move in moves)


def _words(move: Move) -> str:
    talk = f"c{move.talk + 1}"
    facts = f" with {move.facts} facts" if move.facts else ""
    match move.kind:
        case Kind.FLUSH:
            return "flush"
        case Kind.FLOOD:
            return f"flood of {move.lines} lines"
        case Kind.ABORT:
            how = "by call" if move.by_call else "by closing"
            kept = ", partial answer kept" if move.keep else ""
            said = f"abort {talk}{facts} after {move.after} deltas {how}{kept}"
        case Kind.FORK:
            said = f"fork {talk} of c{move.of + 1} after turn {move.turns}{facts}"
        case kind:
            said = f"{kind} {talk}{facts}"
    style = f" ({move.style})" if move.style is not Style.GREEDY else ""
    beside = f" beside {len(move.beside)} strangers" if move.beside else ""
    return f"{said}{style}{beside}"


def write_files(folder: Path, script: Script, *, name: str) -> Path:
    """Write script and test into a folder; return the script's path."""
    path = folder / f"stateful_{name}.json"
    path.write_bytes(written(script))
    test = folder / f"test_stateful_{name}.py"
    test.write_text(
        _TEST.format(about=_plain(script.about), name=path.name, test=test.name), encoding="utf-8"
    )
    return path


def _plain(about: str) -> str:
    """Return a sentence that cannot end a docstring; a model's words may stand in it."""
    flat = " ".join(about.split()) or "A script that failed."
    return flat.replace("\\", "/").replace('"', "'")[:600]


def replay_command(path: Path, settings: Settings) -> str:
    """Return what plays the script again on such a server."""
    words = ["fidelity", "replay", str(path)]
    if settings.base_url:
        words.append(f"--base-url={settings.base_url}")
    if settings.deployment:
        words.append(f"--deployment={settings.deployment}")
    words += [f"--launch-arg={word}" for word in settings.redactor.arguments(settings.launch_arg)]
    allowed = [str(kind) for kind in settings.allow if kind is not Traffic.PASSIVE]
    if settings.deployment is None and allowed:
        words.append(f"--allow={','.join(allowed)}")
    return shlex.join(words)
