"""Whether a run may be continued: the same question, put to the same deployment."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from fidelity.errors import JournalError
from fidelity.records import AnyRecord, Manifest, Setting
from fidelity.runs.journal import Journal

FREE_TO_CHANGE = frozenset(
    {
        "api_key_env",
        "concurrency",
        "config",
        "load_concurrency",
        "max_requests",
        "max_time_s",
        "max_tokens",
        "max_wait_s",
        "resume",
        "run_dir",
        "timeout_s",
    }
)
"""Settings that bound how a run is carried out; all others say what is asked of whom."""


def refuse_other_question(
    journal: Journal, folder: Path, settings: Sequence[Setting], planned: Sequence[str]
) -> None:
    """Refuse to continue a run with other settings or other claims.

    Raises:
        JournalError: names the first difference.
    """
    if not journal.manifests:
        return  # killed before its first record: there is nothing to contradict
    first = journal.manifests[0]
    old = {setting.name: setting.value for setting in first.settings}
    new = {setting.name: setting.value for setting in settings}
    for name in sorted((old.keys() | new.keys()) - FREE_TO_CHANGE):
        if old.get(name) != new.get(name):
            raise JournalError(
                f"cannot resume {folder}: {name} was {old.get(name, 'absent')!r} and is"
                f" {new.get(name, 'absent')!r} now; pass the settings of that run, or start a new"
                " one without --fidelity-resume"
            )
    if first.planned_claims != tuple(planned):
        other = sorted(set(first.planned_claims) ^ set(planned)) or ["their order"]
        raise JournalError(
            f"cannot resume {folder}: it planned {len(first.planned_claims)} claims and this"
            f" selection has {len(planned)} (first difference: {other[0]}); select the same tests"
        )


def refuse_other_model(journal: Journal, folder: Path, model: str) -> None:
    """Refuse to continue a run with a server that now serves another model.

    Raises:
        JournalError: names both models.
    """
    named = [manifest.model for manifest in journal.manifests if manifest.model]
    if named and model and named[0] != model:
        raise JournalError(
            f"cannot resume {folder}: it measured the model {named[0]!r}, and the server now"
            f" serves {model!r}; start a new run"
        )


def spent_s(records: Iterable[AnyRecord]) -> float:
    """Return how long the earlier parts of a run took, by the times of their records, in seconds.

    Each manifest opens a stretch that lasts until the last record before the next one: the time
    between a kill and its resumption is nobody's.
    """
    total, begin, last = 0.0, None, None
    for record in records:
        now = datetime.fromisoformat(record.at) if record.at else None
        if isinstance(record, Manifest):
            total += _seconds(begin, last)
            begin = now
        last = now or last
    return total + _seconds(begin, last)


def _seconds(begin: datetime | None, end: datetime | None) -> float:
    return 0.0 if begin is None or end is None else max(0.0, (end - begin).total_seconds())
