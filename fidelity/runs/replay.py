"""Sends one trial of a finished run again, with everything else taken from its journal.

The run's tests are run on a copy of the journal that lacks this trial: so it is the only thing
left to ask, and its prompt is built by the code that built it the first time.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fidelity.errors import JournalError
from fidelity.records import Control, Manifest, Trial, encode, read_journal
from fidelity.runs.journal import FILE_NAME
from fidelity.runs.summary import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A journal in a temporary folder, with one trial left to ask."""

    folder: Path
    trial: Trial
    command: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """What makes pytest ask the one trial that is missing."""
        return [
            f"--fidelity-run-dir={self.folder}",
            "--fidelity-resume",
            f"--fidelity-replay={self.trial.id}",
            "-q",
            "--tb=no",
            "--no-summary",
        ]

    def compared(self) -> tuple[list[str], int]:
        """Return what the trial said then and now, and 0 (right), 1 (wrong) or 2 (unmeasured)."""
        now = _trial(self.folder, self.trial.id)
        lines = [f"trial {self.trial.id} of {self.trial.claim}", *_shown("then", self.trial)]
        if now is None:
            return [*lines, "now: it was not asked; see the message above"], 2
        code = 2 if now.ok is None else 0 if now.ok else 1
        return [*lines, *_shown("now", now)], code


@contextlib.contextmanager
def prepared(folder: Path, trial_id: str) -> Iterator[Copy]:
    """Copy a run's journal without one trial, for as long as the block lasts.

    Raises:
        JournalError: no such run or trial.
    """
    records = list(read_journal(folder / FILE_NAME))
    wanted = next((r for r in records if isinstance(r, Trial) and r.id == trial_id), None)
    if wanted is None or not isinstance(records[0], Manifest):
        raise JournalError(f"{folder} holds no trial {trial_id}")
    manifest = msgspec.structs.replace(records[0], planned_claims=(wanted.claim,))
    kept = [
        record
        for record in records
        if isinstance(record, Trial | Control)
        and record.claim == wanted.claim
        and not (isinstance(record, Trial) and _same_job(record, wanted))
    ]
    with tempfile.TemporaryDirectory(prefix="fidelity-replay-") as name:
        copy = Path(name)
        lines = [encode(manifest), *(encode(record) for record in kept)]
        (copy / FILE_NAME).write_bytes(b"".join(line + b"\n" for line in lines))
        yield Copy(folder=copy, trial=wanted, command=manifest.command)


def _same_job(one: Trial, other: Trial) -> bool:
    """True for all attempts at one probe, so that the first is asked again under its own id."""
    return (one.arm, one.stage, one.key) == (other.arm, other.stage, other.key)


def _trial(folder: Path, trial_id: str) -> Trial | None:
    found: Trial | None = None
    for record in read_journal(folder / FILE_NAME):
        if isinstance(record, Trial) and record.id == trial_id:
            found = record
    return found


def _shown(when: str, trial: Trial) -> list[str]:
    score = trial.score or ("ok" if trial.ok else "not ok")
    head = f"{when}: {trial.error or score}, expected {printable(trial.expected, 200)!r}"
    lines = [head]
    for exchange in trial.exchanges:
        tokens = f"{exchange.prompt_tokens} prompt tokens, {exchange.cached_tokens} cached"
        lines.append(f"  {exchange.label or exchange.path}: {tokens}, {exchange.finish_reason}")
        lines.append(f"    {printable(exchange.text or exchange.reasoning or exchange.error)}")
    return lines
