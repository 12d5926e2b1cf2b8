"""Runs two quick suites on one real engine, and says whether the harness did its work there.

    python deploy/real_engines/quick_check.py llamacpp [--max-tokens 30000] [--run-dir DIR]

A real engine has faults of its own, so a failed claim is no failure here. What must hold: the run
ended with a verdict and a report, no claim ended in `error`, needles were measured, and the known
faults of this engine (known_findings.json) were all found again. New ones are named.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUITES = ("suites/test_plumbing.py", "suites/test_needle_sweep.py")
CLAIMS_DECIDED = frozenset({0, 1, 2})
"""Exit codes of a run that came to its end."""
FEWEST_NEEDLES = 20


def records_of(journal: Path) -> list[dict[str, Any]]:
    """Return the records of a run."""
    return [json.loads(line) for line in journal.read_text().splitlines() if line.strip()]


def problems_of(
    records: Sequence[dict[str, Any]], known: Sequence[str], *, has_report: bool
) -> list[str]:
    """Return what the run lacks, in words; nothing when the harness did its work."""
    problems = [] if has_report else ["no report.html was written"]
    if not any(record["kind"] == "verdict" for record in records):
        problems.append("the run has no verdict")
    findings = {r["claim"]: r for r in records if r["kind"] == "finding"}
    problems += [
        f"{claim} ended in error: {found['reason']}"
        for claim, found in findings.items()
        if found["outcome"] == "error"
    ]
    needles = [r for r in records if r["kind"] == "trial" and r["probe"] == "needle"]
    measured = sum(trial.get("ok") is not None for trial in needles)
    if measured < FEWEST_NEEDLES:
        problems.append(f"{measured} needles were measured, fewer than {FEWEST_NEEDLES}")
    failed = failed_of(records)
    problems += [f"a known fault was not found: {claim}" for claim in known if claim not in failed]
    return problems


def failed_of(records: Sequence[dict[str, Any]]) -> set[str]:
    """Return the claims that fail, as their last findings say."""
    last = {r["claim"]: r["outcome"] for r in records if r["kind"] == "finding"}
    return {claim for claim, outcome in last.items() if outcome == "fail"}


def main(arguments: Sequence[str]) -> int:
    """Run, look, and say what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", help="a deployment of fidelity.toml")
    parser.add_argument("--max-tokens", type=int, default=30_000)
    parser.add_argument("--run-dir", type=Path, help="a folder that holds no run yet")
    flags = parser.parse_args(arguments)
    run_dir = flags.run_dir or Path(tempfile.mkdtemp(prefix=f"fidelity-{flags.engine}-")) / "run"
    command = [
        *(sys.executable, "-m", "pytest", "-q", *SUITES),
        f"--fidelity-deployment={flags.engine}",
        f"--fidelity-max-tokens={flags.max_tokens}",
        f"--fidelity-run-dir={run_dir}",
    ]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    journal = run_dir / "run.jsonl"
    if code not in CLAIMS_DECIDED or not journal.exists():
        print(f"{flags.engine}: the run ended with exit code {code}", file=sys.stderr)
        return 1
    records = records_of(journal)
    known = json.loads((HERE / "known_findings.json").read_text()).get(flags.engine, [])
    problems = problems_of(records, known, has_report=(run_dir / "report.html").exists())
    new = sorted(failed_of(records) - set(known))
    print(f"{flags.engine}: {len(known)} known faults, {len(new)} other failed claims")
    for claim in new:
        print(f"  also: {claim}")
    for problem in problems:
        print(f"{flags.engine}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
