"""What a run writes down: one frozen record a line in `run.jsonl`.

The first record is a manifest, the last a verdict.

Reports, resume and diff read nothing else. A record holds no key, no Authorization header, and no
prompt of unbounded length: a trial carries the recipe that rebuilds its prompt.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fidelity.errors import JournalError
from fidelity.words import (
    Blame,
    Budget,
    Concern,
    ControlKind,
    Ladder,
    Outcome,
    RunVerdict,
    Score,
    Traffic,
)

SCHEMA_VERSION = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=False):
    """Fields that every record has."""

    schema_version: int = SCHEMA_VERSION
    at: str = ""
    """UTC, ISO 8601, when the record was written."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One resolved setting and where it came from: flag, environment, file, discovered, default."""

    name: str
    value: str
    origin: str


class CapabilityState(msgspec.Struct, frozen=True, kw_only=True):
    """What discovery found out about one capability of the server."""

    name: str
    present: bool
    detail: str = ""
    unlock: str = ""
    """The server flag that would switch it on, when known."""
    expected: bool = False


class GoldenState(msgspec.Struct, frozen=True, kw_only=True):
    """The deployment that a run compares with, by its own word; `failure` when it did not open."""

    name: str
    base_url: str = ""
    model: str = ""
    launched: bool = False
    launch_command: tuple[str, ...] = ()
    server_info: dict[str, Any] = {}
    dialect: str = ""
    version: str = ""
    dtype: str = ""
    """What it computes in, declared or as the server says; "" when nobody says."""
    failure: str = ""


class Manifest(Record, frozen=True, kw_only=True, tag="manifest"):
    """First record of a run; a new one opens each epoch (server restart, change of version)."""

    run_id: str
    epoch: int = 0
    deployment: str
    base_url: str
    model: str
    launched: bool = False
    """True when the harness started the server itself."""
    launch_command: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """What repeats this run, as an argument list."""
    budget: Budget = Budget.QUICK
    seed: int = 0
    versions: dict[str, str] = {}
    git_commit: str = ""
    server_info: dict[str, Any] = {}
    max_model_len: int | None = None
    """Longest prompt and answer together, in tokens, as discovery found it; None when unknown."""
    capabilities: tuple[CapabilityState, ...] = ()
    settings: tuple[Setting, ...] = ()
    expects: tuple[str, ...] = ()
    planned_claims: tuple[str, ...] = ()
    """Ids of all claims collected, in order; fixed before the first trial (Holm's family)."""
    golden: GoldenState | None = None
    """The second deployment of a comparison; None without one."""
    left_out: dict[str, str] = {}
    """Claims that are no part of this run -> what they would need, in words."""
    patches: tuple["PatchState", ...] = ()
    """As they were when the run began."""
    roles: tuple["RoleState", ...] = ()
    """The processes of a deployment that has several, in the order in which they started."""


class RoleState(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a deployment: router, prefill, decode."""

    name: str
    url: str
    host: str = ""
    launched: bool = False
    launch_command: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    """Of fidelity.toml, that its description has on."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of an answer; `arguments` is the raw string that the server sent."""

    name: str
    arguments: str
    id: str = ""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its response, bounded: texts are excerpts of at most a few kilobytes."""

    request_id: str
    started_at: str = ""
    path: str = ""
    traffic: Traffic = Traffic.PASSIVE
    status: int = 0
    replica: str = ""
    label: str = ""
    """What this request is for in the trial, e.g. "tell", "ask", "abort after 5 tokens"."""
    messages: tuple[dict[str, Any], ...] = ()
    """What was sent, each text cut to head ... tail."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str = ""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    aborted: bool = False
    ttft_s: float | None = None
    e2e_s: float | None = None
    error: str = ""
    """One sentence when the exchange failed as infrastructure; then nothing else is evidence."""


class Trial(Record, frozen=True, kw_only=True, tag="trial"):
    """One execution of a probe."""

    id: str
    """Stable: a function of claim, arm, stage, key, attempt and seed, so that resume finds it."""
    claim: str
    """Id of the claim, "<suite stem>/<test name>[<param>]"."""
    suite: str
    probe: str
    """Family of the probe, e.g. "needle"."""
    arm: str = ""
    """"" for a plain probe; otherwise "control", "cold", "cached", ..."""
    stage: int = 1
    """2 for fresh probes of a class that missed in stage 1."""
    key: str = ""
    """Of the probe, unique inside claim, arm and stage; pairs of two arms share it."""
    index: int = 0
    """Attempt: above 0 only when a resumed run asks again what infrastructure trouble cut off."""
    seed: int = 0
    epoch: int = 0
    cluster: str = ""
    """Trials of one cluster share a haystack and are not independent; "" means its own cluster."""
    cell: dict[str, str | int | float] = {}
    """Axes of the sweep: length_tokens, depth_frac, residue_128, needle_kind, ..."""
    recipe: dict[str, Any] = {}
    """Rebuilds the prompt: builder name and its arguments."""
    expected: str = ""
    score: Score | None = None
    ok: bool | None = None
    """True or False when the trial counts; None when it is infrastructure trouble (`error`)."""
    value: float | None = None
    """A graded result where there is one (nats, ratio); `score` otherwise."""
    paths: tuple[str, ...] = ()
    """Paths that this trial proves to have been taken: "cold", "cached", "aborted", ..."""
    lost: str = ""
    """For a failed recall: "rendering", "attention" or "" when token accounting cannot tell."""
    exchanges: tuple[Exchange, ...] = ()
    error: str = ""
    details: dict[str, Any] = {}
    """Figures behind the score, as JSON, bounded: a resumed run decides the same from them."""


class Control(Record, frozen=True, kw_only=True, tag="control"):
    """A control of one claim and whether it came out as it must."""

    claim: str
    suite: str
    control: ControlKind
    what: str
    """What we did to the request, e.g. "the fact is cut out of the context"."""
    expected: str
    observed: str
    ok: bool
    trials: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One of several decisions that make up a claim, with its own figures."""

    title: str
    outcome: Outcome
    """Corrected for the number of parts: a claim fails exactly when one of its parts does."""
    reason: str
    blame: Blame | None = None
    effect_name: str = ""
    effect: float | None = None
    interval: tuple[float, float] | None = None
    threshold: float | None = None
    k: int | None = None
    n: int | None = None
    p_value: float | None = None
    """Of this part taken alone."""


class Finding(Record, frozen=True, kw_only=True, tag="finding"):
    """A claim with its outcome and the evidence behind it.

    Of a claim that is decided in several parts, the figures here are those of its worst part.
    """

    claim: str
    suite: str
    title: str
    """The claim as a sentence with its numbers: "recall >= 0.80 at 4096 tokens"."""
    outcome: Outcome
    reason: str
    """One sentence: what was seen, against what, where, and what to do."""
    ladder: Ladder | None = None
    blame: Blame | None = None
    effect_name: str = ""
    """What `effect` is: "recall", "abs logprob difference, nats", ..."""
    effect: float | None = None
    interval: tuple[float, float] | None = None
    """One-sided 95 % Clopper-Pearson bounds (lower, upper) for rates."""
    threshold: float | None = None
    k: int | None = None
    n: int | None = None
    p_value: float | None = None
    """Of "the claim holds", for fail decisions; Holm runs over these at the end of the run."""
    minimum_detectable_effect: str = ""
    """What this pass could have seen, as a sentence."""
    needs: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Paths proven to have been taken: "cold", "cached", "chunked", "batched", "aborted", ..."""
    trials: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    """What the claim was decided from, in the suite's order; none when it is one decision."""
    profile: dict[str, Any] | None = None
    """Where two arms part: axis ("position", "residue 64", "depth", "length_tokens", ...) -> a
    mapping or list of figures, bounded; what a report draws beside the finding. None: no arms."""
    concern: Concern = Concern.READING
    """A failed claim about the API alone is no failure to read."""
    provisional: bool = False
    """True while Holm has not yet run; the last finding of a claim in the journal counts."""


class PatchState(Record, frozen=True, kw_only=True, tag="patch"):
    """One patch of the deployment, as the server reports it or as fidelity.toml can tell.

    In the manifest: when the run began; as a record of its own: at the end of the run.
    """

    name: str
    state: str
    """on, off, or unknown where nothing tells."""
    calls: int | None = None
    detail: str = ""
    phase: str = ""
    """When it runs, as fidelity.toml says: prefill, decode, both, encoding, config."""
    proof: str = ""
    """What showed that it is live, by its `active_when`; "" where nothing did."""

    @property
    def inert(self) -> bool:
        """True when it is on and never ran: what was measured says nothing of it."""
        return self.state == "on" and self.calls == 0


class Verdict(Record, frozen=True, kw_only=True, tag="verdict"):
    """Last record of a run."""

    verdict: RunVerdict
    blame: Blame | None = None
    sentence: str
    exit_code: int
    counts: dict[str, int] = {}
    holm: tuple[str, ...] = ()
    """Lines that print Holm's procedure over the fail decisions."""
    interrupted: bool = False
    duration_s: float = 0.0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


AnyRecord = Manifest | Trial | Control | Finding | PatchState | Verdict

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyRecord)


def encode(record: AnyRecord) -> bytes:
    """Return one line of the journal, without its newline."""
    return _encoder.encode(record)


def read_journal(path: Path) -> Iterator[AnyRecord]:
    """Yield the records of a journal in order.

    A last line without a newline is what a kill leaves behind: it is dropped.

    Raises:
        JournalError: no file, or a line that is not a record (names file and line).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}") from error
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        if not line.strip():
            continue
        try:
            yield _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise JournalError(
                f"{path}:{number} is not a record of this version: {error}"
            ) from error
