"""Files of a finished run beside its journal: JUnit, the report, a CI system's summary."""

from pathlib import Path
from typing import TYPE_CHECKING

from fidelity.runs.junit import write_junit

if TYPE_CHECKING:
    from fidelity.runs.run import Finished


def write_files(folder: Path, finished: "Finished", *, step_summary: Path | None) -> str:
    """Write them; return why not all could be written, "" when they were.

    Args:
        folder: of the run.
        finished: what it came to.
        step_summary: file that a CI system offers for a Markdown summary; appended to.
    """
    try:
        write_junit(
            folder / "junit.xml",
            finished.findings,
            not_run=finished.not_run,
            duration_s=finished.duration_s,
        )
        import reports

        reports.build(folder)
        _append(folder / "summary.md", step_summary)
    except Exception as error:  # noqa: BLE001 - a broken report must not hide a verdict
        return (
            f"the report could not be written ({type(error).__name__}: {error}); the journal"
            f" is whole: fidelity report {folder}"
        )
    return ""


def _append(summary: Path, step_summary: Path | None) -> None:
    if step_summary is not None and summary.exists():
        with step_summary.open("a", encoding="utf-8") as stream:
            stream.write(summary.read_text(encoding="utf-8"))
