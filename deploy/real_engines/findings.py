"""Writes the failed claims of runs, each with the request that shows it, as JSON and as Markdown.

    python deploy/real_engines/findings.py NAME OUT_DIR RUN_DIR [RUN_DIR ...]

Of several runs the last that decided a claim counts.

OUT_DIR/NAME.json holds claim, reason, blame, request and an excerpt of the response; NAME.md the
same with a curl line that repeats the request.
"""

import ast
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BESIDE = ("a good request", "a plain request", "measure")
"""Labels of requests that are sent beside those that a claim is about."""
RESPONSE_CHARS = 500
SHARED = " (sent once for several claims)"


def read(journal: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return trials by id and last findings by claim."""
    trials: dict[str, Any] = {}
    findings: dict[str, Any] = {}
    for line in journal.read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "trial":
            trials[record["id"]] = record
        elif record["kind"] == "finding":
            findings[record["claim"]] = record
    return trials, findings


def request_of(exchange: Mapping[str, Any]) -> str:
    """Return the body of a request as it was sent; messages may be shortened in the middle."""
    messages = [m for m in exchange["messages"] if m["role"] not in {"request", "raw answer"}]
    raw = next((m["content"] for m in exchange["messages"] if m["role"] == "request"), "{}")
    try:
        body = json.loads(raw)
    except ValueError:
        return str(raw)
    if messages and isinstance(body, dict):
        for message in messages:
            if str(message.get("content")).startswith("[{'type'"):  # parts, kept as their text
                message["content"] = ast.literal_eval(message["content"])
        body = {"model": body.pop("model", None), "messages": messages, **body}
    return json.dumps(body, ensure_ascii=False)


def telling(trial: Mapping[str, Any], reason: str) -> Mapping[str, Any] | None:
    """Return the exchange that shows a breach: the one that the reason names, or the last."""
    exchanges = [e for e in trial["exchanges"] if not e["label"].startswith(BESIDE)]
    own = [e for e in exchanges if not e["label"].endswith(SHARED)] or exchanges
    streamed = "stream" in reason
    for exchange in reversed(own):
        named = exchange["label"].removesuffix(SHARED) in reason
        if named and (not streamed or '"stream": true' in request_of(exchange)):
            return exchange
    return own[-1] if own else None


def entry(finding: Mapping[str, Any], trials: Mapping[str, Any]) -> dict[str, Any]:
    """Return one failed claim with its evidence."""
    wrong = [trials[n] for n in finding["trials"] if n in trials and trials[n].get("ok") is False]
    found = telling(wrong[0], finding["reason"]) if wrong else None
    shown: dict[str, Any] = {
        "claim": finding["claim"],
        "title": finding["title"],
        "reason": finding["reason"].partition("; the request is in trial")[0],
        "blame": finding.get("blame"),
        "ladder": finding.get("ladder"),
    }
    if finding.get("k") is not None and finding["n"] > 1:
        shown["right"] = f"{finding['k']} of {finding['n']}"
    if found is not None:
        raw = next((m["content"] for m in found["messages"] if m["role"] == "raw answer"), "")
        answer = raw or found["text"]
        shown["path"] = found["path"] or "/chat/completions"
        shown["request"] = request_of(found)
        shown["status"] = found["status"]
        streamed = answer.startswith("data:")  # its end tells more than its beginning
        shown["response"] = answer[-RESPONSE_CHARS:] if streamed else answer[:RESPONSE_CHARS]
    return shown


def markdown(name: str, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the failed claims with a curl line each."""
    lines = [f"# Failed claims on `{name}`", ""]
    lines.append(
        "`$URL` is the base URL with its `/v1`. Long messages are shortened in the middle."
    )
    for found in entries:
        lines += [
            "",
            f"## {found['claim']}",
            "",
            found["title"] + ".",
            "",
            f"Seen: {found['reason']}",
        ]
        if found.get("blame"):
            lines += ["", f"Blame: {found['blame']}."]
        if "request" in found:
            body = shlex.quote(found["request"])
            head = "-H 'Content-Type: application/json'"
            curl = f"curl -s $URL{found['path']} {head} -d {body}"
            lines += ["", "```sh", curl, "```", "", f"Answered {found['status']}:", ""]
            lines += ["```", found["response"].replace("```", "'''"), "```"]
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    """Write UTF-8; half a surrogate pair, which some requests send on purpose, as its escape."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def main(name: str, out: Path, run_dirs: Sequence[Path]) -> None:
    """Write both files."""
    entries: dict[str, dict[str, Any]] = {}
    decided: set[str] = set()
    for run_dir in run_dirs:
        trials, findings = read(run_dir / "run.jsonl")
        for claim, finding in findings.items():
            if finding["outcome"] not in {"pass", "fail"}:
                continue
            decided.add(claim)
            entries.pop(claim, None)
            if finding["outcome"] == "fail":
                entries[claim] = entry(finding, trials)
    failed = list(entries.values())
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(failed, indent=1, ensure_ascii=False)
    _write(out / f"{name}.json", text + "\n")
    _write(out / f"{name}.md", markdown(name, failed))
    print(f"{name}: {len(failed)} failed claims of {len(decided)} that were decided")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [Path(word) for word in sys.argv[3:]])
