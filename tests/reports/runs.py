"""Journals of made-up runs, as a harness would write them: one function for each kind of run."""

import random

import msgspec

from fidelity.records import AnyRecord, Finding
from fidelity.words import Blame, Ladder, Outcome, RunVerdict, Score
from tests.reports.hostile import hostile
from tests.reports.pieces import (
    ABORT,
    PLAN,
    controls,
    dialogue,
    exchange,
    manifest,
    needle,
    needles,
    others,
    patches,
    rate_finding,
    sweep_findings,
    verdict,
)


def faithful() -> list[AnyRecord]:
    trials = needles()
    talks = [dialogue(number, ABORT, arm=arm) for number in range(14) for arm in ("", "no abort")]
    generation = [dialogue(100 + n, "long_generation/does_not_loop").exchanges[0] for n in range(1)]
    long = dialogue(
        99,
        "long_generation/does_not_loop",
        exchanges=(
            exchange(
                "Write 200 lines.",
                "line " * 400,
                prompt_tokens=90,
                completion_tokens=2048,
                finish_reason="length",
            ),
            *generation,
        ),
    )
    return [
        manifest(),
        *trials,
        *talks,
        long,
        *controls(),
        *sweep_findings(trials),
        *others(),
        *patches(),
        verdict(
            RunVerdict.FAITHFUL,
            "faithful on 14 of 14 claims: recall 264/264, effective context at least 8,192 tokens",
            counts={"pass": 14},
        ),
    ]


def unfaithful_after_abort() -> list[AnyRecord]:
    """An aborted request's half-written page enters the cache: follow-ups lose the conversation."""
    trials = needles()
    hit = [dialogue(n, ABORT, arm="after abort", ok=n % 3 == 0) for n in range(14)]
    twin = [dialogue(n, ABORT, arm="no abort") for n in range(14)]
    failed = rate_finding(
        ABORT,
        "after an abort by closing the follow-up equals one without an abort",
        hit,
        ladder=Ladder.STRUCTURAL,
        blame=Blame.DEPLOYMENT,
        p_value=0.0004,
        paths=("cached", "aborted"),
        reason="follow-up right 5/14 after an abort (bounds 0.153 to 0.610), 14/14 in the arm "
        "without one, claim >= 0.80; worst after 17 tokens. Look at what an abort leaves in the "
        "prefix cache.",
    )
    return [
        manifest(),
        *trials,
        *hit,
        *twin,
        *controls(),
        *sweep_findings(trials),
        *others(without=[ABORT]),
        failed,
        *patches(),
        verdict(
            RunVerdict.UNFAITHFUL,
            "unfaithful: 1 of 14 claims fails, follow-ups after an abort lose the conversation "
            "(5/14 right, 14/14 without an abort); blame: deployment",
            blame=Blame.DEPLOYMENT,
            counts={"pass": 13, "fail": 1},
            holm=(
                "Holm over 14 planned claims at 0.05, 1 fail decisions:",
                f"  {ABORT}: p = 0.0004, adjusted 0.0056, stands",
            ),
        ),
    ]


def unfaithful_at_a_residue() -> list[AnyRecord]:
    """Attention is wrong where the prompt length is 3 modulo 4."""
    trials = needles(wrong=[3])
    fresh = [
        needle(500 + n, 1027 + 4 * n, ok=False, id=f"fresh-{n}", stage=2, score=Score.WRONG)
        for n in range(22)
    ]
    findings = [
        rate_finding(
            finding.claim,
            finding.title,
            [trial for trial in trials if trial.id in set(finding.trials)],
            threshold=finding.threshold or 0.8,
            ladder=Ladder.STRUCTURAL,
            blame=Blame.UNKNOWN,
        )
        for finding in sweep_findings(trials)
    ]
    return [
        manifest(),
        *trials,
        *fresh,
        *controls(),
        *findings,
        *others(),
        *patches(),
        verdict(
            RunVerdict.UNDECIDED,
            "undecided: 1 of 14 claims fail, with nobody to blame yet: recall alone does not tell "
            "a weak model from a damaged deployment; 6 inconclusive",
            blame=Blame.UNKNOWN,
            exit_code=1,
            counts={"pass": 7, "fail": 1, "inconclusive": 6},
        ),
    ]


def dead_server(claims: int = 14) -> list[AnyRecord]:
    """Nothing answers: every claim is an error, none passes or fails."""
    reason = (
        "http://127.0.0.1:9/v1 refused the connection; start the server or give another "
        "--fidelity-base-url"
    )
    trials = [
        needle(n, 256, ok=False, score=None, lost="", exchanges=(), error=reason) for n in range(5)
    ]
    trials = [msgspec.structs.replace(trial, ok=None) for trial in trials]
    return [
        manifest(
            base_url="http://127.0.0.1:9/v1",
            launched=False,
            launch_command=(),
            capabilities=(),
            server_info={},
            model="x",
        ),
        *trials,
        *[
            Finding(
                claim=claim,
                suite=claim.split("/")[0],
                title=claim.split("/")[1].replace("_", " "),
                outcome=Outcome.ERROR,
                reason=reason,
            )
            for claim in PLAN[:claims]
        ],
        verdict(
            RunVerdict.UNDECIDED,
            "undecided: none of 14 claims could be measured, the server refused the connection",
            counts={"error": claims},
            requests=0,
            prompt_tokens=0,
            completion_tokens=0,
            duration_s=1.2,
        ),
    ]


def interrupted() -> list[AnyRecord]:
    """Ctrl-C after the second length."""
    trials = [trial for trial in needles() if trial.cell["length_tokens"] < 1024]
    findings = [f for f in sweep_findings(needles()) if f.claim in PLAN[:2]]
    return [
        manifest(),
        *trials,
        *findings,
        verdict(
            RunVerdict.UNDECIDED,
            "undecided: interrupted after 2 of 14 claims, both passed",
            interrupted=True,
            exit_code=130,
        ),
    ]


def killed() -> list[AnyRecord]:
    """The same, but the process was killed: there is no verdict."""
    return interrupted()[:-1]


def large() -> list[AnyRecord]:
    """1,500 trials over all lengths, many of them wrong, with long texts."""
    draw = random.Random(1)  # noqa: S311 - data, not secrets
    lengths = [round(256 * 2 ** (5 * n / 99)) for n in range(100)]
    trials = []
    for number in range(1500):
        length = lengths[number % 100]
        ok = length < 2500 or draw.random() < 0.3
        trial = needle(number, length, ok=ok, cluster=f"stack-{number // 5}")
        trials.append(trial)
    findings = sweep_findings(trials)
    return [
        manifest(),
        *trials,
        *controls(),
        *findings,
        *others(),
        *patches(),
        verdict(
            RunVerdict.UNDECIDED,
            "undecided: 3 of 14 claims fail, which is the limit of the model",
            blame=Blame.MODEL_LIMIT,
        ),
    ]


ALL = {
    "faithful": faithful,
    "unfaithful_after_abort": unfaithful_after_abort,
    "unfaithful_at_a_residue": unfaithful_at_a_residue,
    "dead_server": dead_server,
    "interrupted": interrupted,
    "killed": killed,
    "hostile": hostile,
    "large": large,
    "empty": list,
}
