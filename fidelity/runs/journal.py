"""The run folder and its append-only journal.

One record a line, written and flushed at once, synced to disk at findings: what a kill leaves is
whole but for a torn last line, which resume cuts off. One process writes a journal at a time.
"""

import fcntl
import math
import os
import secrets
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from fidelity import records
from fidelity.errors import JournalError
from fidelity.records import AnyRecord, Control, Finding, Manifest, Trial, Verdict

FILE_NAME = "run.jsonl"
LATEST = "latest"


def new_run_folder(root: Path) -> Path:
    """Create `root/<timestamp>-<id>` and point `root/latest` to it.

    Raises:
        JournalError: the folder cannot be made.
    """
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    folder = root / name
    try:
        folder.mkdir(parents=True)
        point_latest(folder)
    except OSError as error:
        raise JournalError(f"cannot create the run folder {folder}: {error.strerror}") from error
    return folder


def point_latest(folder: Path) -> None:
    """Let `latest` beside the folder point to it, in one step."""
    link = folder.parent / LATEST
    if link.exists() and not link.is_symlink():
        return  # a folder of that name is the user's own
    swap = folder.parent / f".{LATEST}-{secrets.token_hex(4)}"
    swap.symlink_to(folder.name, target_is_directory=True)
    swap.replace(link)


class Journal:
    """An open `run.jsonl`: what it holds already, and where the next record goes.

    Safe for several threads of one process. `trials` maps ids to trials, `controls` and `findings`
    hold the last of each kind by claim.
    """

    def __init__(self, path: Path, held: list[AnyRecord], descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.manifests: list[Manifest] = []
        self.trials: dict[str, Trial] = {}
        self.controls: dict[tuple[str, str, str], Control] = {}
        self.findings: dict[str, Finding] = {}
        self.verdict: Verdict | None = None
        for record in held:
            self._index(record)

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Start the journal of a new run.

        Raises:
            JournalError: the folder already holds a run, or cannot be written.
        """
        path = folder / FILE_NAME
        if path.exists() and path.stat().st_size:
            raise JournalError(
                f"{folder} already holds a run: pass --fidelity-resume to continue it, or another"
                " --fidelity-run-dir"
            )
        return cls(path, [], _open_locked(path))

    @classmethod
    def resume(cls, folder: Path) -> Self:
        """Open the journal of an earlier run, less a torn last line.

        Raises:
            JournalError: no run there, a damaged line, or another process writes it.
        """
        path = folder / FILE_NAME
        if not path.exists():
            raise JournalError(f"{folder} holds no run to resume: {FILE_NAME} is not there")
        descriptor = _open_locked(path)
        try:
            _cut_torn_line(path, descriptor)
            held = list(records.read_journal(path))
        except JournalError:
            os.close(descriptor)
            raise
        if held and not isinstance(held[0], Manifest):
            os.close(descriptor)
            raise JournalError(f"{path} does not begin with a manifest: it is no journal of a run")
        return cls(path, held, descriptor)

    def append(self, record: AnyRecord) -> None:
        """Write one record as one line; a finding, a manifest and a verdict reach the disk.

        Raises:
            JournalError: the disk refuses.
        """
        if not record.at:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            record = msgspec.structs.replace(record, at=now)
        line = _encode(record) + b"\n"
        with self._lock:
            try:
                _write_all(self._descriptor, line)
                if isinstance(record, Manifest | Finding | Verdict):
                    os.fsync(self._descriptor)
            except OSError as error:
                raise JournalError(f"cannot write {self.path}: {error.strerror}") from error
            self._index(record)

    def close(self) -> None:
        """Release the file; the journal stays readable in memory."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _index(self, record: AnyRecord) -> None:
        match record:
            case Manifest():
                self.manifests.append(record)
            case Trial():
                self.trials[record.id] = record
            case Control():
                self.controls[(record.claim, record.control, record.what)] = record
            case Finding():
                self.findings[record.claim] = record
            case Verdict():
                self.verdict = record
            case _:
                pass  # patch states are for readers only


def _open_locked(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise JournalError(f"cannot write {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise JournalError(f"{path} is being written by another run: wait for its end") from error
    return descriptor


def _cut_torn_line(path: Path, descriptor: int) -> None:
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.ftruncate(descriptor, whole)


def _write_all(descriptor: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(descriptor, view) :]


def _encode(record: AnyRecord) -> bytes:
    """Encode, with lone surrogates and non-finite axes of a hostile server made harmless."""
    if isinstance(record, Trial) and any(_is_non_finite(axis) for axis in record.cell.values()):
        # JSON has no NaN: as null it would be no axis, and the line could not be read back
        cell = {
            name: str(axis) if _is_non_finite(axis) else axis for name, axis in record.cell.items()
        }
        record = msgspec.structs.replace(record, cell=cell)
    try:
        return records.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(record)))


def _is_non_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case dict():
            return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value
